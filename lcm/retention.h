/* retention.h - what ended generations leave on disk (unpacked code, data, logs of supervisors) goes after a time, or the oldest first when it is
 * too much. Results and checkpoints stay until their job is deleted. One pass over all folders in small steps, so that it costs no round
 * of the LCM more than a few milliseconds, however many jobs have ended. @thread one. */
#ifndef PST_LCM_RETENTION_H
#define PST_LCM_RETENTION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lcm_retention lcm_retention;

typedef struct lcm_retention_conf {
    const char *state_dir, *site;
    int64_t keep_us;   /* after the end; 0 = for ever */
    int64_t bytes_max; /* of all ended generations together; 0 = no limit */
    int64_t every_us;  /* between two passes */
    /* Is this generation still needed: it lives, has something to publish, or the Trainer counts on it? */
    bool (*needed)(void *arg, const char *training_id, int generation);
    void (*swept)(void *arg, const char *training_id, int generation);
    void *arg;
} lcm_retention_conf;

lcm_retention *lcm_retention_new(const lcm_retention_conf *conf);
void lcm_retention_free(lcm_retention *r);
/* A little of the work. mono_us decides when the next pass begins, wall_us how old things are. */
void lcm_retention_step(lcm_retention *r, int64_t mono_us, int64_t wall_us);

#endif
