/* gang_text.c - the members as frameworks write them down: TensorFlow's TF_CONFIG, Open MPI's host file (mpirun(1)), hosts(5). Everything in it has been
 * checked by common/objects/members.h, so that no name or address can end its line. */
#include "lcm/supervisor/gang.h"

#include "common/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sup_gang_world(const pst_members *m)
{
    int n = 0;
    for (size_t i = 0; i < m->n; i++)
        n += m->at[i].rank >= 0;
    return n;
}

static const pst_member *of_rank(const pst_members *m, int rank)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].rank == rank)
            return &m->at[i];
    return NULL;
}

const pst_member *sup_gang_master(const pst_members *m)
{
    return of_rank(m, 0);
}

static json_t *endpoint(const pst_member *m)
{
    bool six = strchr(m->address, ':');
    char text[sizeof m->address + 12];
    snprintf(text, sizeof text, "%s%s%s:%d", six ? "[" : "", m->address, six ? "]" : "", m->port);
    return json_string(text);
}

/* Addresses of a role stand in the order of their index, whatever the order of the list. */
char *sup_gang_tf_config(const pst_members *m, const pst_member *self)
{
    json_t *cluster = json_object();
    for (size_t i = 0; i < m->n; i++) {
        if (json_object_get(cluster, m->at[i].role))
            continue;
        json_t *all = json_array();
        for (int k = 0; k < m->at[i].count; k++)
            for (size_t j = 0; j < m->n; j++)
                if (m->at[j].index == k && !strcmp(m->at[j].role, m->at[i].role))
                    json_array_append_new(all, endpoint(&m->at[j]));
        json_object_set_new(cluster, m->at[i].role, all);
    }
    json_t *config = json_pack("{s:o, s:{s:s, s:i}}", "cluster", cluster, "task", "type", self->role, "index", self->index);
    char *text = pst_json_text(config);
    json_decref(config);
    return text;
}

/* A line a host. Our own is `localhost`, where mpirun forks: an address of 127.0.0.0/8 it would try to reach by ssh. */
char *sup_gang_hostfile_text(const pst_members *m, const pst_member *self)
{
    pst_buf b = {0};
    for (int rank = 0; rank < (int)m->n; rank++) {
        const pst_member *first = of_rank(m, rank);
        bool told = false;
        int slots = 0;
        for (int k = 0; first && k < (int)m->n; k++) {
            const pst_member *other = of_rank(m, k);
            if (!other || strcmp(other->host, first->host) != 0)
                continue;
            told = told || k < rank;
            slots += other->slots;
        }
        if (first && !told)
            pst_buf_printf(&b, "%s slots=%d\n", strcmp(first->host, self->host) ? first->address : "localhost", slots);
    }
    return pst_buf_steal(&b);
}

char *sup_gang_hosts_text(const pst_members *m, const char *prefix, const char *host_text)
{
    pst_buf b = {0};
    pst_buf_printf(&b, "%s\n# the learners of this job, by penstock\n", host_text);
    for (int rank = 0; rank < (int)m->n; rank++) {
        const pst_member *one = of_rank(m, rank);
        if (one)
            pst_buf_printf(&b, "%s %s-%d.%s %s-%d\n", one->address, prefix, rank, prefix, prefix, rank);
    }
    return pst_buf_steal(&b);
}
