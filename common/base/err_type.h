/* err_type.h - what an error is: the codes, the classes and the struct, without the functions of err.h. It is also part of the
 * engine's installed header (engine/CMakeLists.txt puts it there), so it must stand alone in C17 and C++, and what it says is
 * part of that library's ABI: codes keep their numbers, the struct its layout. */
#ifndef PST_BASE_ERR_TYPE_H
#define PST_BASE_ERR_TYPE_H

enum {
    PST_OK = 0,
    PST_EINVAL = -1, /* bad argument, configuration or manifest */
    PST_ENOMEM = -2,
    PST_EIO = -3,       /* file or system call */
    PST_ENOTFOUND = -4, /* job, model, schema, topic, file */
    PST_EEXIST = -5,
    PST_ETIMEDOUT = -6,
    PST_EUNREACH = -7,  /* broker, registry or store does not answer */
    PST_EAUTH = -8,     /* refused: credentials or ACL */
    PST_EINCOMPAT = -9, /* schema not compatible */
    PST_EPARSE = -10,   /* bytes that do not parse */
    PST_ELIMIT = -11,   /* a named limit was exceeded */
    PST_EUNSUPPORTED = -12,
    PST_EFENCED = -13,  /* someone newer runs in our place */
    PST_ESTATE = -14,   /* not allowed in this state */
    PST_ESTOPPED = -15, /* told to stop */
    PST_EAGAIN = -16    /* nothing now; ask again */
};

typedef enum { PST_CLASS_NONE = 0, PST_CLASS_RETRY, PST_CLASS_DATA, PST_CLASS_FATAL } pst_err_class;

typedef struct pst_err {
    int code; /* PST_E…; 0 = nothing written yet */
    pst_err_class cls;
    int native;      /* errno, rd_kafka_resp_err_t, HTTP status …; 0 if none */
    char origin[12]; /* "sys", "kafka", "avro", "registry", "sqlite", "mongo", "onnx", "cuda", "config" … */
    char text[480];  /* one sentence or two: what, where, why, what to do */
} pst_err;

#endif
