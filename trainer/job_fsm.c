/* job_fsm.c - the table of transitions as bit sets: a row says from which states an event may come and where it leads, so that the whole
 * life of a job is read on one screen, and the printed form (ARCHITECTURE.md) cannot differ from what runs. */
#include "trainer/job_fsm.h"

enum {
    NEW = 1 << PST_JOB_PUBLIC_STATE_UNKNOWN,
    QUEUED = 1 << PST_JOB_PUBLIC_STATE_QUEUED,
    PENDING = 1 << PST_JOB_PUBLIC_STATE_PENDING,
    DOWNLOADING = 1 << PST_JOB_PUBLIC_STATE_DOWNLOADING,
    PROCESSING = 1 << PST_JOB_PUBLIC_STATE_PROCESSING,
    STORING = 1 << PST_JOB_PUBLIC_STATE_STORING,
    COMPLETED = 1 << PST_JOB_PUBLIC_STATE_COMPLETED,
    FAILED = 1 << PST_JOB_PUBLIC_STATE_FAILED,
    HALTED = 1 << PST_JOB_PUBLIC_STATE_HALTED,
    TERMINATED = 1 << PST_JOB_PUBLIC_STATE_TERMINATED,
    REFUSED = 1 << PST_JOB_PUBLIC_STATE_REJECTED,
    LIVE = PENDING | DOWNLOADING | PROCESSING | STORING,
    ENDED = COMPLETED | FAILED | HALTED | TERMINATED | REFUSED,
    SAME = 0 /* as `to`: the state stays */
};

static const struct row {
    enum pst_job_event_type event;
    unsigned from; /* any of these */
    unsigned to;   /* one state, or SAME */
    const char *when;
} table[] = {
    {PST_JOB_EVENT_TYPE_RECEIVED, NEW, QUEUED, "a valid SUBMIT of a new (user, request_id)"},
    {PST_JOB_EVENT_TYPE_ADMITTED, QUEUED, SAME, "manifest and code were found good, and the data stores that had to be asked"},
    {PST_JOB_EVENT_TYPE_QUEUED, QUEUED, SAME, "it waits; said again when the reason changes"},
    {PST_JOB_EVENT_TYPE_DEPLOYING, QUEUED, PENDING, "it is first in its queue and fits: a new generation"},
    {PST_JOB_EVENT_TYPE_PROCESS_STARTED, LIVE, SAME, "a supervisor started"},
    {PST_JOB_EVENT_TYPE_PROCESS_DOWNLOADING, PENDING, DOWNLOADING, "the first process fetches code or data"},
    {PST_JOB_EVENT_TYPE_PROCESS_DOWNLOADING, LIVE, SAME, "a further process does"},
    {PST_JOB_EVENT_TYPE_PROCESS_READY, PENDING | DOWNLOADING, PROCESSING, "the command of every process runs"},
    {PST_JOB_EVENT_TYPE_PROCESS_READY, LIVE, SAME, "the command of one process runs"},
    {PST_JOB_EVENT_TYPE_CHECKPOINT_COMMITTED, LIVE, SAME, "a process wrote a checkpoint"},
    {PST_JOB_EVENT_TYPE_STORING, PENDING | DOWNLOADING | PROCESSING, STORING, "every learner's command is done, results are kept"},
    {PST_JOB_EVENT_TYPE_STORING, LIVE, SAME, "one learner's command is done"},
    {PST_JOB_EVENT_TYPE_RESULT_STORED, LIVE | COMPLETED, SAME, "a result or a model version was registered"},
    {PST_JOB_EVENT_TYPE_PROCESS_EXITED, LIVE, SAME, "a process group is empty, or its supervisor was lost"},
    {PST_JOB_EVENT_TYPE_COMPLETED, LIVE, COMPLETED, "every learner exited with 0, or its model is registered, and nothing is left"},
    {PST_JOB_EVENT_TYPE_FAILED, QUEUED | LIVE, FAILED, "a process failed, or a limit was exceeded, and no retry is left"},
    {PST_JOB_EVENT_TYPE_RETRYING, LIVE, QUEUED, "the same, and a retry is left"},
    {PST_JOB_EVENT_TYPE_HALTING, LIVE, SAME, "a user asked to halt, or a queue preempts: SIGTERM, grace, SIGKILL"},
    {PST_JOB_EVENT_TYPE_PREEMPTED, LIVE, QUEUED, "its place went to a queue that preempts, and nothing of the generation is left"},
    {PST_JOB_EVENT_TYPE_HALTED, QUEUED | LIVE, HALTED, "nothing of the generation is left"},
    {PST_JOB_EVENT_TYPE_RESUMED, HALTED | FAILED, QUEUED, "a user asked to resume"},
    {PST_JOB_EVENT_TYPE_TERMINATING, LIVE, SAME, "a user asked to terminate or delete"},
    {PST_JOB_EVENT_TYPE_TERMINATED, QUEUED | LIVE | HALTED, TERMINATED, "nothing of the generation is left"},
    {PST_JOB_EVENT_TYPE_DELETED, ENDED, SAME, "a user asked to delete; the state's record is removed"},
    {PST_JOB_EVENT_TYPE_REPRIORITISED, QUEUED | LIVE | HALTED | FAILED, SAME, "a user changed the priority"},
    {PST_JOB_EVENT_TYPE_HELD, QUEUED, SAME, "a user holds it back until it is released"},
    {PST_JOB_EVENT_TYPE_RELEASED, QUEUED | HALTED, SAME, "a user lets it go on"},
    {PST_JOB_EVENT_TYPE_REJECTED, NEW, REFUSED, "a submission that cannot be met: no job, but its answer is kept"},
    {PST_JOB_EVENT_TYPE_REJECTED, QUEUED, REFUSED, "its data stores were asked, and cannot be used"},
    {PST_JOB_EVENT_TYPE_REJECTED, NEW | QUEUED | LIVE | ENDED, SAME, "a request that cannot be met"},
    {PST_JOB_EVENT_TYPE_OTHER, QUEUED | LIVE, SAME, "a remark: why a deployment takes long, a launcher's note"},
};
enum { ROWS = sizeof table / sizeof *table };

bool job_fsm_allows(pst_job_public_state from, enum pst_job_event_type event, pst_job_public_state to)
{
    for (int i = 0; i < ROWS; i++)
        if (table[i].event == event && (table[i].from & 1u << from) && (table[i].to == SAME ? from == to : table[i].to == 1u << to))
            return true;
    return false;
}

static void add_states(pst_buf *out, unsigned set)
{
    if (set == LIVE) {
        pst_buf_adds(out, "any of PENDING to STORING");
        return;
    }
    if (set == ENDED) {
        pst_buf_adds(out, "any end");
        return;
    }
    if (set == (NEW | QUEUED | LIVE | ENDED)) {
        pst_buf_adds(out, "any, or none");
        return;
    }
    const char *comma = "";
    for (unsigned s = 0; s <= PST_JOB_PUBLIC_STATE_REJECTED; s++)
        if (set & 1u << s) {
            pst_buf_printf(out, "%s%s", comma,
                           s == PST_JOB_PUBLIC_STATE_UNKNOWN ? "(none)" : pst_job_public_state_text((pst_job_public_state)s));
            comma = ", ";
        }
}

void job_fsm_markdown(pst_buf *out)
{
    pst_buf_adds(out, "| event | from | to | when |\n|---|---|---|---|\n");
    for (int i = 0; i < ROWS; i++) {
        pst_buf_printf(out, "| %s | ", pst_job_event_type_text(table[i].event));
        add_states(out, table[i].from);
        pst_buf_adds(out, " | ");
        if (table[i].to == SAME)
            pst_buf_adds(out, "the same");
        else
            add_states(out, table[i].to);
        pst_buf_printf(out, " | %s |\n", table[i].when);
    }
}
