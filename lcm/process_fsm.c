/* process_fsm.c - the transitions as bit sets, as those of a job are (the Trainer's table): a row says from which states a cause may lead where,
 * so that the whole life of a process is read on one screen, and the printed form (ARCHITECTURE.md) cannot differ from what runs. */
#include "lcm/process_fsm.h"

#include "common/base/err.h"

enum {
    WAITING = 1 << LCM_STATE_WAITING,
    ALIVE = 1 << LCM_STATE_ALIVE,
    STOPPING = 1 << LCM_STATE_STOPPING,
    KILLING = 1 << LCM_STATE_KILLING,
    FLUSHING = 1 << LCM_STATE_FLUSHING,
    DRAINING = 1 << LCM_STATE_DRAINING,
    ENDED = 1 << LCM_STATE_ENDED,
    NOT_OVER = WAITING | ALIVE | STOPPING | KILLING | FLUSHING | DRAINING
};

static const struct row {
    lcm_cause cause;
    unsigned from; /* any of these */
    unsigned to;   /* one state */
    const char *when;
} table[] = {
    {LCM_CAUSE_START, WAITING, ALIVE, "its generation is the newest, nothing of an older one lives, its devices are free"},
    {LCM_CAUSE_ADOPT, WAITING, ALIVE, "after a start of the LCM: its supervisor lives"},
    {LCM_CAUSE_ADOPT, WAITING, STOPPING, "the same, and it was asked to end"},
    {LCM_CAUSE_STOP, WAITING, ENDED, "stopped before it was started"},
    {LCM_CAUSE_STOP, ALIVE, STOPPING, "a HALT or KILL, a newer generation, or the site is stopped: SIGTERM, grace"},
    {LCM_CAUSE_NOT_INTENDED, WAITING, ENDED, "the intent could not be written"},
    {LCM_CAUSE_NOT_PLACED, WAITING, ENDED, "it asks for more devices than there are"},
    {LCM_CAUSE_NOT_STARTED, ALIVE | STOPPING, ENDED, "the launcher could not create it"},
    {LCM_CAUSE_GRACE_OVER, STOPPING, KILLING, "its supervisor did not end it within the grace time"},
    {LCM_CAUSE_VANISHED, NOT_OVER & ~KILLING, KILLING, "no supervisor and no exit.json: what it left is looked for and ended"},
    {LCM_CAUSE_FLUSH, NOT_OVER, FLUSHING, "exit.json is there, its supervisor still publishes"},
    {LCM_CAUSE_EXITED, NOT_OVER, ENDED, "exit.json is there, no supervisor, and all was published"},
    {LCM_CAUSE_UNPUBLISHED, NOT_OVER, DRAINING, "exit.json is there, no supervisor, and output waits: one is started that only publishes"},
    {LCM_CAUSE_EMPTIED, KILLING, ENDED, "the launcher is certain that nothing of it lives: LOST"},
    {LCM_CAUSE_LEFT_OUTPUT, ENDED, DRAINING, "it was ended by force, and output of it waits"},
};
enum { ROWS = sizeof table / sizeof *table };

bool lcm_fsm_allows(lcm_state from, lcm_cause cause, lcm_state to)
{
    for (int i = 0; i < ROWS; i++)
        if (table[i].cause == cause && (table[i].from & 1u << from) && table[i].to == 1u << to)
            return true;
    return false;
}

const char *lcm_state_name(lcm_state s)
{
#define NAME(name) #name,
    static const char *const names[] = {LCM_STATES(NAME)};
    PST_ASSERT(s < LCM_N_STATES);
    return names[s];
}

const char *lcm_cause_name(lcm_cause c)
{
    static const char *const names[] = {LCM_CAUSES(NAME)};
    PST_ASSERT(c < LCM_N_CAUSES);
    return names[c];
}

static void add_states(pst_buf *out, unsigned set)
{
    const char *comma = "";
    for (unsigned s = 0; s < LCM_N_STATES; s++)
        if (set & 1u << s) {
            pst_buf_printf(out, "%s%s", comma, lcm_state_name((lcm_state)s));
            comma = ", ";
        }
}

void lcm_fsm_markdown(pst_buf *out)
{
    pst_buf_adds(out, "| cause | from | to | when |\n|---|---|---|---|\n");
    for (int i = 0; i < ROWS; i++) {
        pst_buf_printf(out, "| %s | ", lcm_cause_name(table[i].cause));
        if (table[i].from == NOT_OVER)
            pst_buf_adds(out, "any but ENDED");
        else
            add_states(out, table[i].from);
        pst_buf_printf(out, " | %s | %s |\n", lcm_state_name((lcm_state)__builtin_ctz(table[i].to)), table[i].when);
    }
}
