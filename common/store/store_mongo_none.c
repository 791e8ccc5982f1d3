/* store_mongo_none.c - in place of store_mongo.c where libmongoc was not found: the address is refused with the cure, and the table of stores needs
 * no #if. */
#include "common/store/store_internal.h"

int store_mongo_open(const char *uri, bool read_only, pst_store **ret_store, pst_err *err)
{
    return pst_err_set(
        err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "config", 0,
        "this penstock was built without MongoDB: install libmongoc-dev and configure with -DPST_WITH_MONGO=ON, or use sqlite:PATH");
}
