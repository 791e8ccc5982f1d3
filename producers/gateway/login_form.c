/* login_form.c - what a person without a session is shown, and the body that comes back. A plain form, so that it works before any script does and under a
 * policy that allows no inline code but the one script below, by its digest. The script sends the browser on to its user's place where one is
 * remembered (who.c says why places). */
#include "producers/gateway/login.h"

#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

static const char script[] =
    "const place = localStorage.getItem(\"penstock\");"
    "if (location.pathname === place) localStorage.removeItem(\"penstock\");" /* its session is over */
    "else if (/^\\/page-[0-9a-f]+\\/$/.test(place) && !document.querySelector(\"[role=alert]\")) location.replace(place);";
static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:20rem;margin:15vh auto;padding:0 "
    "1rem;background:Canvas;color:CanvasText;color-scheme:light dark}"
    "label{display:block;margin:.8rem 0}input{display:block;width:100%;box-sizing:border-box;font:inherit;padding:.4rem}"
    "button{font:inherit;padding:.4rem 1.2rem}[role=alert]{font-weight:600}";

static char *digest_of(const char *text)
{
    uint8_t digest[32];
    pst_sha256_sum(text, strlen(text), digest);
    return pst_base64(digest, sizeof digest);
}

void gw_login_form(pst_http_req *req, int status, const char *why)
{
    char *js = digest_of(script), *css = digest_of(style);
    char *policy = pst_sprintf(
        "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        js, css);
    pst_buf b = {0};
    pst_buf_printf(&b,
                   "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>penstock: "
                   "log in</title>"
                   "<style>%s</style><main><h1>penstock</h1>%s%s%s<form method=post action=/login>"
                   "<label>Name <input name=name autocomplete=username autocapitalize=none required autofocus></label>"
                   "<label>Password <input name=password type=password autocomplete=current-password required></label>"
                   "<button>Log in</button></form></main><script>%s</script>\n",
                   style, why ? "<p role=alert>" : "", why ? why : "", why ? "</p>" : "", script);
    pst_http_add_header(req, "Content-Security-Policy", policy);
    pst_http_add_header(req, "X-Content-Type-Options", "nosniff");
    pst_http_add_header(req, "Referrer-Policy", "same-origin"); /* no-referrer would make the form's Origin `null` */
    pst_http_add_header(req, "Cache-Control", "no-store");
    pst_http_add_header(req, "WWW-Authenticate", "Bearer realm=\"penstock\"");
    pst_http_reply(req, status, "text/html; charset=utf-8", b.data, b.len);
    pst_buf_done(&b);
    free(policy);
    free(js);
    free(css);
}

/* ---- the body of a form ---- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static char *decode(const char *text, size_t len)
{
    char *out = pst_alloc(len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int high = text[i] == '%' && i + 2 < len ? hex(text[i + 1]) : -1, low = high >= 0 ? hex(text[i + 2]) : -1;
        if (low >= 0)
            i += 2;
        char c = low >= 0 ? (char)(high * 16 + low) : text[i] == '+' ? ' ' : text[i];
        if (!c) {
            free(out);
            return NULL;
        }
        out[n++] = c;
    }
    out[n] = 0;
    return out;
}

char *gw_form_field(pst_slice body, const char *name)
{
    const char *p = body.data, *end = p + body.len, *value = NULL;
    size_t len = 0, n = strlen(name);
    while (p < end) {
        const char *stop = memchr(p, '&', (size_t)(end - p));
        stop = stop ? stop : end;
        if ((size_t)(stop - p) > n && !memcmp(p, name, n) && p[n] == '=') {
            if (value)
                return NULL;
            value = p + n + 1;
            len = (size_t)(stop - value);
        }
        p = stop + 1;
    }
    return value ? decode(value, len) : NULL;
}
