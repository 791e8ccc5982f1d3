/* source_verb.c - `penstock source telemetry|file`: which source is meant. Each has options of its own, so each is a verb behind this word; help and
 * completion of `source` alone list them. */
#include "common/base/fs.h"
#include "common/base/log.h"
#include "producers/sources/sources.h"
#include "verbs.h"

#include <stdio.h>
#include <string.h>

static const struct kind {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} kinds[] = {
    {"telemetry", "this computer's figures, as Avro", source_telemetry},
    {"file", "lines of a JSON-lines or CSV file", source_file},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int source_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    const char *names[N_KINDS];
    for (size_t i = 0; i < N_KINDS; i++) {
        names[i] = kinds[i].name;
        if (!strcmp(word, kinds[i].name))
            return kinds[i].run(argc - 1, argv + 1);
    }
    bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
    FILE *f = help ? stdout : stderr;
    if (!help && *word) {
        const char *near = pst_nearest(word, names, N_KINDS);
        fprintf(f, "penstock source: there is no source `%s`%s%s%s\n\n", word, near ? "; did you mean `" : "", near ? near : "",
                near ? "`?" : "");
    }
    fprintf(f, "Usage: penstock source KIND [options]\n\nProduce records into a topic.\n\n");
    for (size_t i = 0; i < N_KINDS; i++)
        fprintf(f, "  %-12s %s\n", kinds[i].name, kinds[i].summary);
    fprintf(f, "\nExamples:\n  penstock source telemetry --interval 100ms\n  penstock source file data.csv --topic readings\n"
               "  penstock source telemetry --help\n");
    return help ? 0 : 2;
}

const pst_verb pst_source_verb = {"source", "produce records: this computer's telemetry, files", "streams", source_run,
                                  PST_USAGES(&pst_source_telemetry_usage, &pst_source_file_usage)};
