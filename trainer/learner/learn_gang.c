/* learn_gang.c - members.json says where every rank is; the generation's nonce, which stands in no environment and no folder of a job, is the secret by
 * which ranks know each other. So a process of another job, an earlier generation, or anybody else who finds the port, is none of them. */
#include "trainer/learner/learn_gang.h"

#include "common/base/buf.h"
#include "common/objects/members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_server(const pst_member *m)
{
    return !strcmp(m->role, "ps");
}

/* Ranks first, then servers; -1 = neither. */
static int place_of(const pst_member *m, int world, int servers)
{
    if (m->rank >= 0)
        return m->rank < world ? m->rank : -1;
    return is_server(m) && m->index < servers ? world + m->index : -1;
}

static int places_of(const pst_members *m, const pst_rundir_spec *spec, learn_gang *g, pst_err *err)
{
    const pst_member *self = pst_members_find(m, spec->process);
    int world = 0, servers = 0;
    for (size_t i = 0; i < m->n; i++) {
        world += m->at[i].rank >= 0;
        servers += is_server(&m->at[i]);
    }
    int me = self ? place_of(self, world, servers) : -1;
    if (me < 0 || world + servers < 2)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0,
                           "%s is none of the %d ranks and %d parameter servers of its generation (members.json)", spec->process, world,
                           servers);
    g->places = pst_alloc((size_t)(world + servers) * sizeof *g->places);
    for (size_t i = 0; i < m->n; i++)
        if (place_of(&m->at[i], world, servers) >= 0) {
            learn_place *p = &g->places[place_of(&m->at[i], world, servers)];
            snprintf(p->address, sizeof p->address, "%s", m->at[i].address);
            p->port = m->at[i].port;
        }
    g->opts = (learn_ring_opts){.rank = me,
                                .world = world,
                                .servers = servers,
                                .at = g->places,
                                .training_id = spec->training_id,
                                .generation = spec->generation,
                                .secret = g->secret};
    return 0;
}

int learn_gang_of(const pst_rundir_spec *spec, learn_gang *g, pst_err *err)
{
    *g = (learn_gang){0};
    pst_members m = {0};
    char *dir = pst_rundir_gen_dir(spec->state_dir, spec->training_id, spec->generation);
    int rc = pst_members_read(dir, &m, err);
    pst_rundir_nonce_read(spec->state_dir, spec->training_id, spec->generation, g->secret);
    if (!rc && !*g->secret)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "learner", 0,
                         "generation %d has no nonce below %s/nonces, by which its learners know each other; resume the job for a new one",
                         spec->generation, spec->state_dir);
    if (!rc)
        rc = places_of(&m, spec, g, err);
    pst_members_done(&m);
    free(dir);
    return rc;
}

void learn_gang_done(learn_gang *g)
{
    free(g->places);
    *g = (learn_gang){0};
}
