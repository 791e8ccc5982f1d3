/* penstock_supervise.c - the program that an LCM starts for each process of a job (lcm/local/launcher_local.c). It is not the whole of penstock: it
 * starts once a learner and stays as long as that does, so what it loads counts as often. */
#include "common/base/program.h"
#include "lcm/supervisor/supervisor.h"

int main(int argc, char **argv)
{
    return pst_program_main(&pst_supervise_verb, argc, argv);
}
