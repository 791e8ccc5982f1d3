/* meeting.c - the processes of a gang say by which address they are reached, and none begins before all have. The Trainer keeps what they said, so that
 * whoever asks why a job does not start is told for whom it waits, and so that a gang of which one is never heard ends with a sentence. Who
 * begins when is the supervisors' to decide (common/objects/members.h); nothing here holds them up. */
#include "common/base/address.h"
#include "common/base/clock.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

enum { SAY_AFTER_US = 2000000, LIMIT_US = 300000000, COMPLAINT_US = 100000000 /* three times as long as between two of them */ };

static bool has_address(const pst_job_process *p)
{
    return p->address && *p->address;
}

static bool is_reached(const trainer_job *j, const pst_job_process *p)
{
    return has_address(p) || (p->state >= PST_JOB_PROCESS_STATE_RUNNING && !pst_job_is_spread(&j->s));
}

/* Those that have said nothing; *ret_first: the first of them. Somebody has to have said something: where none does, the supervisors are of a version
 * that does not. */
static size_t missing(const trainer_job *j, const pst_job_process **ret_first)
{
    size_t n = 0, said = pst_job_is_spread(&j->s); /* over several nodes all are of a version that does */
    *ret_first = NULL;
    for (size_t i = 0; i < j->s.n_processes; i++) {
        const pst_job_process *p = &j->s.processes[i];
        said += has_address(p);
        n += !is_reached(j, p);
        if (!is_reached(j, p) && !*ret_first)
            *ret_first = p;
    }
    return said ? n : 0;
}

#define WAITS_FOR "waits for the addresses of "

/* "waits for the addresses of worker-2 and 3 others", "… of worker-2 on node b"; free() */
static char *waiting_text(const trainer_job *j, const pst_job_process *first, size_t n)
{
    pst_buf b = {0};
    pst_buf_printf(&b, WAITS_FOR "%s", first->name);
    if (pst_job_is_spread(&j->s))
        pst_buf_printf(&b, " on node %s", pst_job_process_node(&j->s, first));
    if (n > 1)
        pst_buf_printf(&b, " and %zu other%s", n - 1, n == 2 ? "" : "s");
    return pst_buf_steal(&b);
}

static bool is_waiting_reason(const trainer_job *j)
{
    return j->s.reason && !strncmp(j->s.reason, WAITS_FOR, sizeof WAITS_FOR - 1);
}

/* ---- what one says ----------------------------------------------------------------------------------------------------------------- */

static int32_t port_in(const pst_process_report *r, const char *key)
{
    const char *t = pst_str_map_get(r->details, r->n_details, key);
    char *end = NULL;
    long v = t ? strtol(t, &end, 10) : 0;
    return t && end != t && !*end && v > 0 && v < 65536 ? (int32_t)v : 0;
}

/* The state that has every address is the list of members, and goes to every node as such (lcm/membership.h); this tells people. */
static void say_members(tcore *c, trainer_job *j)
{
    char *nodes = trainer_nodes_text(j);
    char *reason =
        pst_sprintf("generation %d has its %zu members: every one is reachable, on %s", j->s.generation, j->s.n_processes, nodes);
    if (is_waiting_reason(j))
        tcore_set_text(&j->s.reason, NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = reason});
    free(reason);
    free(nodes);
}

/* It says its address again, as supervisors do while they wait for the list (lcm/supervisor/gang.c). One report that was delivered twice is no complaint. */
static void waits_for_list(const tcore *c, trainer_job *j, size_t at)
{
    if (!j->list_us) {
        j->list_us = c->now_us;
        j->list_at = at;
    }
    if (j->list_at == at)
        j->list_said_us = c->now_us;
}

void tcore_reachable(tcore *c, trainer_job *j, const pst_process_report *r)
{
    pst_job_process *p = NULL;
    const pst_job_process *first;
    for (size_t i = 0; r->process && i < j->s.n_processes; i++)
        if (!strcmp(j->s.processes[i].name, r->process))
            p = &j->s.processes[i];
    const char *host = pst_str_map_get(r->details, r->n_details, "host"), *address = pst_str_map_get(r->details, r->n_details, "address");
    int32_t port = port_in(r, "port"), master_port = port_in(r, "master_port"), other_port = port_in(r, "other_port");
    if (!p || !address || !pst_address_is_numeric(address) || !port || !master_port || !other_port) {
        c->counts.reports_unknown++;
        return;
    }
    bool met = pst_job_is_spread(&j->s) && !missing(j, &first); /* the list was made, and stands */
    if (met && p->state < PST_JOB_PROCESS_STATE_RUNNING)
        waits_for_list(c, j, (size_t)(p - j->s.processes));
    if (met || pst_job_process_is_ended(p->state) ||
        (has_address(p) && !strcmp(p->address, address) && p->port == port && p->master_port == master_port &&
         p->other_port == other_port)) {
        c->counts.reports_repeated++;
        return;
    }
    tcore_set_text(&p->host, host ? host : r->host);
    tcore_set_text(&p->address, address);
    p->port = port;
    p->master_port = master_port;
    p->other_port = other_port;
    tcore_changed(c, j);
    if (pst_job_is_spread(&j->s) && !missing(j, &first))
        say_members(c, j);
}

/* ---- time -------------------------------------------------------------------------------------------------------------------------- */

static void give_up_waiting(tcore *c, trainer_job *j, const pst_job_process *first, size_t n)
{
    char *who = waiting_text(j, first, n), span[32];
    char *reason = pst_sprintf("the gang did not meet within %s: it %s, %s", pst_span_text(LIMIT_US, span), who,
                               n == 1 ? "which has not said where it is reached" : "which have not said where they are reached");
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.process = first->name, .reason_code = "S101", .reason = reason});
    tcore_start_failing(c, j, first->name, "S101", reason);
    free(who);
    free(reason);
}

/* Every address is known, and one process says again and again that it has not got the list: the LCM of its node cannot write it, or does not follow the
 * states. How long the others prepare themselves has no limit; this has. A node that is silent is another matter. */
static void check_list(tcore *c, trainer_job *j)
{
    const pst_job_process *p = j->list_us && j->list_at < j->s.n_processes ? &j->s.processes[j->list_at] : NULL;
    bool over =
        !p || p->state >= PST_JOB_PROCESS_STATE_RUNNING || j->s.stop_action != PST_JOB_STOP_ACTION_NONE || trainer_job_is_failing(j);
    const char *name = p ? pst_job_process_node(&j->s, p) : "";
    if (over || c->now_us - j->list_said_us > COMPLAINT_US || !trainer_node_has_lease(c, tcore_node(c, j->s.site, name))) {
        j->list_us = 0;
        return;
    }
    if (j->list_us > c->now_us || c->unsettled)
        j->list_us = j->list_said_us = c->now_us;
    if (c->now_us - j->list_us < LIMIT_US)
        return;
    char span[32], *process = pst_strdup(p->name);
    char *reason = pst_sprintf("%s on node %s has had no list of the gang's members for %s though every address is known: the log of that "
                               "node's LCM says why",
                               process, name, pst_span_text(LIMIT_US, span));
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.process = process, .reason_code = "S101", .reason = reason});
    tcore_start_failing(c, j, process, "S101", reason);
    free(process);
    free(reason);
}

/* What it waited for is there: the remark is out of date. */
static void say_met(tcore *c, trainer_job *j, size_t n)
{
    if (n || !is_waiting_reason(j))
        return;
    tcore_set_text(&j->s.reason, NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = "every process of the gang is reachable"});
}

void trainer_meeting_tick(tcore *c, trainer_job *j)
{
    const pst_job_process *first;
    check_list(c, j);
    size_t n = j->s.state <= PST_JOB_PUBLIC_STATE_DOWNLOADING ? missing(j, &first) : 0;
    if (!n || j->s.stop_action != PST_JOB_STOP_ACTION_NONE || trainer_job_is_failing(j)) {
        say_met(c, j, n);
        j->meet_us = 0;
        return;
    }
    if (!j->meet_us || j->meet_us > c->now_us || c->unsettled) /* a clock that is set right ends no wait */
        j->meet_us = c->now_us;
    int64_t waited_us = c->now_us - j->meet_us;
    if (waited_us >= LIMIT_US) {
        give_up_waiting(c, j, first, n);
        return;
    }
    char *text = waiting_text(j, first, n);
    if (waited_us >= SAY_AFTER_US && (!j->s.reason || strcmp(j->s.reason, text) != 0)) {
        tcore_set_text(&j->s.reason, text);
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.process = first->name, .reason = text});
    }
    free(text);
}
