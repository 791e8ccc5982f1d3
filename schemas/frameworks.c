/* frameworks.c - the table. Whoever runs a job, checks it or hands out credentials asks the row and not the name, so that one more is one more row. */
#include "schemas/frameworks.h"

#include "schemas/learn_settings.h"

#include <string.h>

static void check_learn(const pst_manifest *m, pst_complaints *errors)
{
    pst_learn_settings settings;
    pst_learn_settings_of(m, &settings, errors);
    pst_learn_settings_done(&settings);
}

static const pst_framework table[] = {
    {.name = "native", .verb = "learn", .settings = "learner", .reads_topics = true, .check = check_learn},
    {.name = "horovod", .needs_version = true, .needs_command = true, .by_mpirun = true},
    {.name = "pytorchmpi", .needs_version = true, .needs_command = true, .by_mpirun = true},
    {.needs_version = true, .needs_command = true},
};
enum { ROWS = sizeof table / sizeof *table };

const pst_framework *pst_framework_of(const char *name)
{
    size_t i = 0;
    while (table[i].name && (!name || strcmp(table[i].name, name) != 0))
        i++;
    return &table[i];
}

const pst_framework *pst_framework_at(size_t i)
{
    return i < ROWS ? &table[i] : NULL;
}
