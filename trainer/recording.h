/* recording.h - what the Trainer read and said, as it stands on the topics: queues, requests, reports, heartbeats, commands, events, in order of time.
 *
 * From Kafka, from the beginning to the present end, or from lines as `penstock cat -J` prints them (of any of the topics, in any order).
 * @thread one owner. */
#ifndef PST_TRAINER_RECORDING_H
#define PST_TRAINER_RECORDING_H

#include "common/platform/client.h"

typedef struct trainer_entry {
    pst_topic topic; /* JOBS_REQUESTS, JOBS_REPORTS, WORKERS, JOBS_COMMANDS, JOBS_EVENTS, QUEUES */
    int32_t partition;
    int64_t offset, time_us; /* never earlier than that of the entry before it in its partition */
    union {
        pst_job_request request;
        pst_process_report report;
        pst_worker_state worker;
        pst_job_command command;
        pst_job_event event;
        pst_queue_spec queue;
    };
    char *bad; /* a request that is none: why; NULL */
} trainer_entry;

typedef struct trainer_recording {
    trainer_entry *at;
    size_t n, cap;
    size_t left_out; /* records of our own topics that could not be read, tombstones, lines of other topics */
} trainer_recording;

int trainer_recording_of_topics(trainer_recording *r, pst_client *client, pst_err *err);
/* path "-": stdin */
int trainer_recording_of_file(trainer_recording *r, const char *path, pst_err *err);
void trainer_recording_done(trainer_recording *r);

#endif
