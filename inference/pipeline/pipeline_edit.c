/* pipeline_edit.c - finds the lines of a top-level section by their indentation, which is what YAML's block form goes by, and then does not trust that:
 * the edited text is parsed and must be the old tree with the new section, else it is refused. */
#include "inference/pipeline/pipeline_edit.h"

#include "common/base/buf.h"
#include "common/base/yaml.h"

#include <stdlib.h>
#include <string.h>

#define SECTION "rollout"

int pst_pipeline_rollout(const char *text, const char *file, json_t **ret_rollout, pst_err *err)
{
    pst_yaml y;
    int rc = pst_yaml_parse(text, strlen(text), file, &y, err);
    if (rc < 0)
        return rc;
    const json_t *there = json_object_get(y.root, SECTION);
    *ret_rollout = json_is_object(there) ? json_deep_copy(there) : json_object();
    pst_yaml_done(&y);
    return 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static bool begins_section(const char *line)
{
    size_t n = strlen(SECTION), quote = *line == '"' || *line == '\'';
    if (strncmp(line + quote, SECTION, n) != 0)
        return false;
    line += quote + n + quote;
    return line[strspn(line, " ")] == ':';
}

/* Blank lines and comments at its end are the next section's. */
static const char *section_end(const char *begin)
{
    const char *end = next_line(begin), *last = end;
    for (; *end && strchr(" \t#\r\n}]", *end); end = next_line(end))
        if (!strchr("#\r\n", *end))
            last = next_line(end);
    return last;
}

static char *edit(const char *text, const json_t *rollout)
{
    const char *at = text;
    while (*at && !begins_section(at))
        at = next_line(at);
    pst_buf out = {0};
    pst_buf_add(&out, text, (size_t)(at - text));
    if (out.len && out.data[out.len - 1] != '\n')
        pst_buf_addc(&out, '\n');
    if (json_object_size(rollout)) {
        char *flow = json_dumps(rollout, JSON_ENSURE_ASCII);
        pst_buf_printf(&out, SECTION ": %s\n", flow);
        free(flow);
    }
    if (*at)
        at = section_end(at);
    pst_buf_add(&out, at, strlen(at) + 1);
    return out.data;
}

static int is_as_meant(const pst_yaml *old, const char *edited, const char *file, const json_t *rollout, pst_err *err)
{
    pst_yaml y = {0};
    pst_err why = {0};
    json_t *meant = json_deep_copy(old->root);
    if (json_object_size(rollout))
        json_object_set(meant, SECTION, (json_t *)rollout);
    else
        json_object_del(meant, SECTION);
    bool ok = pst_yaml_parse(edited, strlen(edited), file, &y, &why) == 0 && json_equal(y.root, meant);
    pst_yaml_done(&y);
    json_decref(meant);
    return ok ? 0
              : pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                            "%s: the section rollout cannot be changed where it stands; write it as a section of its own lines, and apply "
                            "the file",
                            file);
}

int pst_pipeline_edit_rollout(const char *text, const char *file, const json_t *rollout, char **ret_text, pst_err *err)
{
    pst_yaml y;
    int rc = pst_yaml_parse(text, strlen(text), file, &y, err);
    if (rc < 0)
        return rc;
    const json_t *there = json_object_get(y.root, SECTION);
    bool same = json_object_size(rollout) ? json_equal(there, rollout) : !there;
    char *edited = same ? pst_strdup(text) : edit(text, rollout);
    if (!same)
        rc = is_as_meant(&y, edited, file, rollout, err);
    pst_yaml_done(&y);
    if (rc < 0)
        free(edited);
    else
        *ret_text = edited;
    return rc;
}
