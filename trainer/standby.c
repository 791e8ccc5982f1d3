/* standby.c - one Trainer is active, others wait. Whoever waits says so once and looks a few times a second: that costs nothing, and a successor is there at once. */
#include "trainer/standby.h"

#include "common/base/fs.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/base/retry.h"
#include "common/base/settings.h"
#include "trainer/shell.h"

#include <stdlib.h>

enum { RETRY_MS = 500, REOPEN_MS = 2000 };

int trainer_standby_lock_folder(const pst_client *client, pst_err *err)
{
    const char *dir = client->settings->state_dir.value;
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (rc < 0)
        return rc;
    char *path = pst_fs_join(dir, "trainer.lock"), *words = pst_sprintf("reason=\"another trainer uses %s\"", dir);
    rc = pst_lock_wait(path, PST_LOCK_PLAIN, "trainer", words, err);
    free(words);
    free(path);
    return rc;
}

/* The group never commits: every owner reads all heartbeats that are kept. */
int trainer_standby_open(trainer_standby *s, pst_err *err)
{
    const char *topics[] = {pst_client_topic(s->client, PST_TOPIC_WORKERS)};
    char *group = pst_settings_topic(s->client->settings, "trainer.active"), *instance = trainer_shell_instance(s->client);
    pst_consumer_opts how = {.topics = topics, .n_topics = 1, .report_eof = true};
    if (s->grouped) {
        how.group = group;
        how.instance_id = instance;
    }
    int rc;
    while ((rc = pst_consumer_new(s->client->bus, &how, &s->beats, err)) < 0 && err->cls == PST_CLASS_RETRY &&
           pst_retry("trainer", err, RETRY_MS))
        ;
    free(group);
    free(instance);
    return rc;
}

void trainer_standby_close(trainer_standby *s)
{
    pst_consumer_free(s->beats);
    s->beats = NULL;
}

bool trainer_standby_is_active(const trainer_standby *s)
{
    pst_range own[4];
    return !s->grouped || pst_consumer_assignment(s->beats, own, 4) > 0;
}

/* After an outage the broker may have given our static membership to our own earlier session: that fences a consumer for good, and
 * nobody else need be there (another trainer of this state folder is kept out by its lock file). A new consumer goes on; so it does where a
 * consumer's position is not known any more. */
int trainer_standby_reopen(trainer_standby *s, pst_err *err)
{
    pst_log_err("trainer", err);
    pst_err_clear(err);
    bool goes_on = pst_retry_pause(REOPEN_MS, NULL, NULL);
    trainer_standby_close(s);
    return goes_on ? trainer_standby_open(s, err) : 0;
}
