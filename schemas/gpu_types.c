/* gpu_types.c - drivers name devices at length, and each in its own way ("Tesla V100-SXM2-16GB", "NVIDIA H100 PCIe"); people say v100 and h100. So a name is
 * looked for within the type, where its number does not go on: h100 is found in nvidia-NVIDIAH100PCIe, a10 is not found in A100, nor l4 in L40S. A table of
 * all models there are would be out of date with each new one. */
#include "schemas/gpu_types.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool both_digits(char a, char b)
{
    return isdigit((unsigned char)a) && isdigit((unsigned char)b);
}

bool pst_gpu_type_is(const char *type, const char *name)
{
    size_t n = strlen(name), len = strlen(type);
    for (size_t i = 0; n && i + n <= len; i++)
        if (!strncasecmp(type + i, name, n) && !(i && both_digits(type[i - 1], name[0])) && !both_digits(name[n - 1], type[i + n]))
            return true;
    return false;
}

size_t pst_gpu_rank(const pst_gpu_preference *p, char *const *types, size_t n_types)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < n_types; k++)
            if (pst_gpu_type_is(types[k], p->at[i]))
                return i;
    return p->n;
}
