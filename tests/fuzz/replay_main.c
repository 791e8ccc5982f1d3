/* replay_main.c - runs a fuzz target over files and folders given as arguments: the corpus as a regression test, without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int files;

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    size_t len = 0, cap = 1 << 16;
    uint8_t *data = malloc(cap);
    for (size_t n; data && (n = fread(data + len, 1, cap - len, f)) > 0;) {
        len += n;
        if (len == cap)
            data = realloc(data, cap *= 2);
    }
    fclose(f);
    if (!data)
        return 1;
    uint8_t *exact = malloc(len ? len : 1); /* exactly the bytes: a read beyond them is seen */
    memcpy(exact, data, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    free(data);
    files++;
    return 0;
}

static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode))
        return replay_file(path);
    struct dirent **list;
    int n = scandir(path, &list, NULL, alphasort), rc = 0;
    for (int i = 0; i < n; i++) {
        char sub[4096];
        snprintf(sub, sizeof sub, "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.')
            rc |= replay(sub);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return rc;
}

int main(int argc, char **argv)
{
    int rc = 0;
    for (int i = 1; i < argc; i++)
        rc |= replay(argv[i]);
    printf("%d inputs replayed\n", files);
    return rc || !files;
}
