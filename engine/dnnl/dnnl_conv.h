/* dnnl_conv.h - large convolutions by oneDNN (libdnnl 2.x), where it is there and pays; our own kernels are the fallback and the twin.
 *
 * Built only with PST_WITH_DNNL and its header; the library is opened when the first convolution wants it (2 to 5 ms, 4 MB), so no process
 * pays that only links the engine. Debian's libdnnl computes with OpenMP: the calling thread is set to one OpenMP thread
 * while primitives are made and run, and then back, which touches no other thread and no environment. Source of the interface: oneDNN 2.6, the C API.
 * @thread the plan's */
#ifndef PST_ENGINE_DNNL_CONV_H
#define PST_ENGINE_DNNL_CONV_H

#include "engine/node_backend.h"

extern const eng_node_backend eng_dnnl_conv_backend;

#endif
