/* membership.c - ranks, local ranks and sizes are computed by every node from the same state in the same way: they are nobody's opinion. Local is what
 * is on one node, not on one host: a node is what hands out devices. */
#include "lcm/membership.h"

#include "schemas/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lcm_membership_sets(const pst_manifest *m, const pst_deploy_spec *spec, const char *node, lcm_command *ret_command)
{
    lcm_command *c = ret_command;
    int rank = 0, at = 0;
    if (spec->n_nodes && spec->n_nodes != (size_t)pst_manifest_processes(m)) /* of a manifest that this version reads otherwise */
        return;
    for (size_t i = 0; i < m->n_roles; i++) {
        const pst_role *r = &m->roles[i];
        bool ranked = pst_role_is_ranked(r->name);
        pst_process_set *run = NULL; /* of processes side by side that are ours */
        for (int k = 0; k < r->count; k++, at++) {
            bool ours = !spec->n_nodes || !strcmp(spec->nodes[at], node);
            if (ours && !run && c->n_sets < PST_PROCESS_SETS_MAX) {
                run = &c->sets[c->n_sets++];
                *run = (pst_process_set){.first = k + 1, .gpus = r->gpus, .rank = ranked ? rank + k : -1};
                snprintf(run->prefix, sizeof run->prefix, "%s", pst_manifest_prefix(m, r));
            }
            if (ours && run)
                run->count++;
            else
                run = NULL;
        }
        rank += ranked ? r->count : 0;
    }
}

bool lcm_membership_concerns(const pst_job_state *s, const char *node)
{
    for (size_t i = 0; i < s->n_processes; i++)
        if (s->processes[i].node && !strcmp(s->processes[i].node, node))
            return true;
    return false;
}

static bool is_complete(const pst_job_state *s)
{
    for (size_t i = 0; i < s->n_processes; i++)
        if (!s->processes[i].address || !*s->processes[i].address)
            return false;
    return s->n_processes > 0;
}

static pst_member member_of(const pst_job_process *p, const pst_manifest *m)
{
    pst_member x = {.rank = -1, .local_rank = -1, .port = p->port, .master_port = p->master_port, .other_port = p->other_port, .slots = 1};
    const pst_role *role = pst_manifest_role(m, p->name, &x.index);
    snprintf(x.process, sizeof x.process, "%s", p->name);
    snprintf(x.host, sizeof x.host, "%s", p->node); /* what a host file tells apart, even where two nodes are one computer */
    snprintf(x.address, sizeof x.address, "%s", p->address);
    if (role) { /* else pst_members_write() refuses it */
        snprintf(x.role, sizeof x.role, "%s", role->name);
        x.count = role->count;
        x.slots = role->gpus > 1 ? role->gpus : 1;
    }
    return x;
}

static void rank_them(pst_member *at, const pst_job_state *s)
{
    int rank = 0;
    for (size_t i = 0; i < s->n_processes; i++)
        if (pst_role_is_ranked(at[i].role))
            at[i].rank = rank++;
    for (size_t i = 0; i < s->n_processes; i++) {
        at[i].local_rank = at[i].rank < 0 ? -1 : 0;
        for (size_t k = 0; at[i].rank >= 0 && k < s->n_processes; k++) {
            bool here = at[k].rank >= 0 && !strcmp(s->processes[k].node, s->processes[i].node);
            at[i].local_size += here;
            at[i].local_rank += here && at[k].rank < at[i].rank;
        }
    }
}

bool lcm_membership_of(const pst_job_state *s, pst_members *ret_members)
{
    if (!is_complete(s))
        return false;
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(s->manifest, strlen(s->manifest), &m, &errors, &warnings); /* its secrets are sealed, which is no matter here */
    pst_members all = {pst_alloc(s->n_processes * sizeof *all.at), s->n_processes};
    for (size_t i = 0; i < s->n_processes; i++)
        all.at[i] = member_of(&s->processes[i], &m);
    rank_them(all.at, s);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    *ret_members = all;
    return true;
}
