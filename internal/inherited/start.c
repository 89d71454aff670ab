#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Go's runtime and the threads reserve that much address space, and use little
 * of it. With less, the runtime crashes with a stack trace, before main or
 * later. */
#define LEAST_SPACE ((rlim_t)3 << 29)
static const char too_little[] =
	"gdrcp: this process may not have 1.5 GiB of address space: raise the limit (ulimit -v unlimited)\n";

int inherited_looked;
unsigned inherited_missing;

/* Runs before main, and so before Go's runtime opens /dev/null in place of
 * closed descriptors. */
__attribute__((constructor)) static void look(void) {
	int fd;
	struct rlimit space;

	if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < LEAST_SPACE) {
		ssize_t told = write(2, too_little, sizeof too_little - 1);
		(void)told; /* the exit code remains */
		_exit(1);
	}
	for (fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			inherited_missing |= 1u << fd;
	inherited_looked = 1;
}
