/* asker.c - a few threads and one array of questions under one lock. A question stays in the array until its answer is in a committed round: whatever
 * becomes of the round, nobody is asked twice by this process, and a Trainer that comes next asks by itself (trainer/stores.c). */
#include "trainer/asker.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/thread.h"
#include "common/platform/stores.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, QUESTIONS_MAX = 256, LIMIT_MS = 6000 }; /* a submission is answered within 10 s */

typedef enum { ASKED, TAKEN, ANSWERED } stage;

typedef struct question {
    char *training_id, *manifest, *refused;
    stage stage;
} question;

struct trainer_asker {
    const char *allowed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    question *at[QUESTIONS_MAX]; /* in the order in which they were asked */
    size_t n;
    pthread_t threads[THREADS];
    int n_threads; /* started with the first question: most Trainers never have one */
    bool over;
};

static bool is_over(void *arg)
{
    trainer_asker *a = arg;
    pthread_mutex_lock(&a->lock);
    bool over = a->over;
    pthread_mutex_unlock(&a->lock);
    return over;
}

static char *find_out(trainer_asker *a, const char *manifest)
{
    pst_manifest m = {0};
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(manifest, strlen(manifest), &m, &errors, &warnings);
    char *refused = pst_stores_refused(&m, a->allowed, LIMIT_MS, is_over, a);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return refused;
}

/* With the lock held. */
static question *next(trainer_asker *a)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i]->stage == ASKED)
            return a->at[i];
    return NULL;
}

/* Its question stays where it is while it works on it: only answered ones are dropped. */
static void *work(void *arg)
{
    trainer_asker *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->over) {
        question *q = next(a);
        if (!q) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        q->stage = TAKEN;
        pthread_mutex_unlock(&a->lock);
        char *refused = find_out(a, q->manifest);
        pthread_mutex_lock(&a->lock);
        q->refused = refused;
        q->stage = ANSWERED;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

trainer_asker *trainer_asker_new(const char *allowed)
{
    trainer_asker *a = pst_alloc(sizeof *a);
    a->allowed = allowed;
    pthread_mutex_init(&a->lock, NULL);
    pst_cond_init(&a->changed);
    return a;
}

static void question_free(question *q)
{
    if (q->manifest)
        explicit_bzero(q->manifest, strlen(q->manifest));
    free(q->manifest);
    free(q->training_id);
    free(q->refused);
    free(q);
}

void trainer_asker_free(trainer_asker *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->over = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_threads; i++)
        pthread_join(a->threads[i], NULL);
    for (size_t i = 0; i < a->n; i++)
        question_free(a->at[i]);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

void trainer_asker_ask(trainer_asker *a, const char *training_id, const char *manifest)
{
    bool there = false;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < a->n && !there; i++)
        there = !strcmp(a->at[i]->training_id, training_id);
    if (!there && a->n < QUESTIONS_MAX) {
        question *q = pst_alloc(sizeof *q);
        q->training_id = pst_strdup(training_id);
        q->manifest = pst_strdup(manifest);
        a->at[a->n++] = q;
        pthread_cond_signal(&a->changed);
    }
    bool busy = next(a) != NULL;
    pthread_mutex_unlock(&a->lock);
    if (busy && a->n_threads < THREADS && pst_thread_start(&a->threads[a->n_threads], "stores", work, a) == 0)
        a->n_threads++;
}

/* With the lock held: answered ones before the others, so that an answer's place stays the same until it is dropped. */
static void sort_answers(trainer_asker *a)
{
    size_t answered = 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i]->stage == ANSWERED) {
            question *q = a->at[i];
            memmove(a->at + answered + 1, a->at + answered, (i - answered) * sizeof *a->at);
            a->at[answered++] = q;
        }
}

bool trainer_asker_answer(trainer_asker *a, size_t at, const char **ret_training_id, const char **ret_refused)
{
    pthread_mutex_lock(&a->lock);
    if (!at)
        sort_answers(a);
    bool there = at < a->n && a->at[at]->stage == ANSWERED;
    if (there) {
        *ret_training_id = a->at[at]->training_id;
        *ret_refused = a->at[at]->refused;
    }
    pthread_mutex_unlock(&a->lock);
    return there;
}

void trainer_asker_drop(trainer_asker *a, size_t n)
{
    pthread_mutex_lock(&a->lock);
    PST_ASSERT(n <= a->n);
    for (size_t i = 0; i < n; i++)
        question_free(a->at[i]);
    memmove(a->at, a->at + n, (a->n - n) * sizeof *a->at);
    a->n -= n;
    pthread_mutex_unlock(&a->lock);
}
