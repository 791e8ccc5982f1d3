/* score.c - numbers in, scores out: score MODEL.onnx <ROWS (numbers, any separators); without rows, four made-up ones. Build it with
 *     cc score.c $(pkg-config --cflags --libs penstock-engine) -o score */
#include <penstock_engine.h>
#include <stdio.h>

static float rows[1 << 20];

int main(int argc, char **argv)
{
    pst_err err = {0};
    pst_model *model = NULL;
    pst_plan *plan = NULL;
    if (pst_model_load_file(argc > 1 ? argv[1] : "model.onnx", NULL, &model, &err) < 0 || pst_plan_new(model, NULL, &plan, &err) < 0)
        return fprintf(stderr, "score: %s\n", err.text), 1;
    const pst_model_info *info = pst_model_info_get(model);
    const pst_value_info *x = &info->inputs[0];
    if (info->n_inputs != 1 || x->dtype != PST_F32 || x->rank != 2 || x->dims[1] < 1 || x->dims[1] > 1 << 18)
        return fprintf(stderr, "score: this example feeds one float input of shape (N, columns)\n"), 1;
    fprintf(stderr, "%s (%s) -> %s: %zu nodes, %zu parameters, engine %s on %s\n", x->name, pst_dtype_name(x->dtype), info->outputs[0].name,
            info->n_nodes, info->n_parameters, pst_engine_version(), pst_engine_isa());
    int64_t columns = x->dims[1], n = 0, given;
    while (n < 1 << 20 && scanf("%f%*[, ;\t]", &rows[n]) == 1)
        n++;
    for (given = n; !given && n < 4 * columns; n++)
        rows[n] = (float)n / 10;
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {n / columns, columns}, .data = rows}, out;
    if (pst_plan_run(plan, &in, 1, &out, 1, &err) < 0)
        return fprintf(stderr, "score: %s\n", err.text), 1;
    int64_t wide = out.rank > 1 ? out.dims[1] : 1;
    for (int64_t i = 0; out.dtype == PST_F32 && i < out.dims[0] * wide; i++)
        printf("%g%c", (double)((float *)out.data)[i], (i + 1) % wide ? ' ' : '\n');
    pst_plan_free(plan);
    pst_model_unref(model);
    return 0;
}
