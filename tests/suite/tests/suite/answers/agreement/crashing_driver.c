/* A driver that loads, and crashes when it is initialised. */
#include <stdlib.h>

int cuInit(unsigned flags)
{
	(void)flags;
	abort();
}
