/* score_note.h - a note of what is being computed, in a file that outlives the process: whoever comes after a crash knows by which records.
 *
 *     n = score_note_open(dir, pipeline, number, &found);     // found.crashed: the predecessor's story
 *     score_note_begins(n, before, records, last); compute; score_note_ends(n);
 *
 * A model that brings the process down (a defect of an engine, of a library, of a driver) would else do so again at every restart. After a crash
 * records are computed one by one until those that were in hand are through; the one at which the process dies next, alone, is the culprit: it
 * becomes a dead letter uncomputed. Only a fatal signal of our own while computing counts, since a SIGKILL says nothing of a record. A model that
 * brings it down at each record is no record's fault: after three in a row none is blamed, and the pipeline pauses until another model comes.
 * @thread begins and ends: one owner; score_note_thread: every thread that computes. One note a process. */
#ifndef PST_INFERENCE_RUN_SCORE_NOTE_H
#define PST_INFERENCE_RUN_SCORE_NOTE_H

#include "common/bus/bus.h"

typedef struct score_note score_note;

typedef struct score_crash {
    int signal; /* 0 = there was none */
    uint64_t records;
    char topic[250]; /* the last of them */
    int32_t partition;
    int64_t offset;
} score_crash;

/* NULL: there is no folder to write it; then nothing is known after a crash. */
score_note *score_note_open(const char *state_dir, const char *pipeline, int number, score_crash *ret_crash);
void score_note_close(score_note *n); /* NULL-safe, as all here */
/* before_them: records of the open round, which come again before these. */
void score_note_begins(score_note *n, uint64_t before_them, uint64_t records, const pst_record *last);
void score_note_ends(score_note *n); /* they were computed; nothing where none began */
/* This thread computes them now, or no more: a fault of another is not theirs. */
void score_note_computes(bool on);
/* A stack for signals, so that one which has run over is told too. */
void score_note_thread(void);
void score_note_thread_ends(void);
/* The model in use (0 to 2: its variant): another than before clears what is known of the old one. */
void score_note_model(score_note *n, int variant, const char *digest);
/* It died at several records in a row and computed none between them. */
bool score_note_is_hopeless(const score_note *n);

/* Records are to be computed one by one. */
bool score_note_careful(const score_note *n);
/* The text for the dead letter of this record; NULL = it is none that brings the process down. Static. */
const char *score_note_culprit(const score_note *n, const pst_record *r);
/* Everything before next is committed: culprits there are nobody's business any more. */
void score_note_passed(score_note *n, const char *topic, int32_t partition, int64_t next);

#endif
