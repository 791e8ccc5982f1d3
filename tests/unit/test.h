/* test.h - cmocka with the headers it wants in the order it wants them. */
#ifndef PST_TESTS_TEST_H
#define PST_TESTS_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka last */
#include <cmocka.h>
#endif
