/* user.c - `penstock user hash`: a password becomes the text that stands in a users file. The password comes from the terminal, unseen, or from stdin, and
 * never from the command line, which every process of the computer can read. */
#include "common/base/fs.h"
#include "common/base/password.h"
#include "common/platform/verb.h"
#include "verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { SHORT = 8 };

static const pst_usage user_usage = {
    "user",
    "hash",
    "Print the hash of a password, for a line of the gateway's users file.",
    "Asks for the password twice on a terminal, without showing it; else reads one line of stdin. The line is then NAME:HASH:ROLE[,ROLE], "
    "with the roles\n"
    "viewer (sees all, changes nothing), user (sees and touches its own jobs) and operator (all): `penstock gateway --users FILE`.",
    "penstock user hash\nprintf 'ann:%s:user\\n' \"$(penstock user hash <password.txt)\" >>users && chmod 600 users",
    NULL,
    0,
    false};

static int read_line(FILE *in, char room[PST_PASSWORD_MAX + 3], pst_err *err)
{
    if (!fgets(room, PST_PASSWORD_MAX + 3, in))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "no password was given: type it, or send it to stdin as one line");
    room[strcspn(room, "\r\n")] = 0;
    return 0;
}

/* The terminal is as it was when this returns, also where reading failed; a signal between is the shell's to mend, as with every getpass. */
static int read_unseen(const char *prompt, char room[PST_PASSWORD_MAX + 3], pst_err *err)
{
    struct termios before, silent;
    if (tcgetattr(STDIN_FILENO, &before) < 0)
        return pst_err_sys(err, errno, "cannot look at the terminal");
    silent = before;
    silent.c_lflag &= ~(tcflag_t)ECHO;
    fputs(prompt, stderr);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
    int rc = read_line(stdin, room, err);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    fputc('\n', stderr);
    return rc;
}

static int read_password(char room[PST_PASSWORD_MAX + 3], pst_err *err)
{
    char again[PST_PASSWORD_MAX + 3] = "";
    if (!isatty(STDIN_FILENO))
        return read_line(stdin, room, err);
    int rc = read_unseen("password: ", room, err);
    if (!rc)
        rc = read_unseen("the same again: ", again, err);
    if (!rc && strcmp(room, again) != 0)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "the two are not the same");
    explicit_bzero(again, sizeof again);
    return rc;
}

static int user_run(int argc, char **argv)
{
    pst_verb_run v;
    char room[PST_PASSWORD_MAX + 3] = "", *hash = NULL;
    int status = pst_verb_parse(&v, &user_usage, argc, argv, NULL, 1, 1);
    if (status >= 0)
        return status;
    int rc = strcmp(v.args[0], "hash") ? pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "usage: penstock user hash") : 0;
    if (!rc)
        rc = read_password(room, &v.err);
    if (!rc && strlen(room) < SHORT && *room)
        fprintf(stderr, "penstock user: a password of less than %d characters is soon guessed\n", SHORT);
    if (!rc)
        rc = pst_password_hash(room, &hash, &v.err);
    if (!rc)
        puts(hash);
    explicit_bzero(room, sizeof room);
    free(hash);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_user_verb = {"user", "hashes of passwords, for the gateway's users file", "services", user_run, PST_USAGES(&user_usage)};
