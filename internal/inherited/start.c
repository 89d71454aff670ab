#include "start.h"

#include <errno.h>
#include <fcntl.h>

int inherited_looked;
unsigned inherited_missing;

/* Runs before main, and so before Go's runtime puts /dev/null in the place of
 * closed descriptors. */
__attribute__((constructor)) static void look(void) {
	int fd;

	for (fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			inherited_missing |= 1u << fd;
	inherited_looked = 1;
}
