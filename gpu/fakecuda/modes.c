/* GDRCP_FAKE_CUDA: see fake.h. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *fake_mode(const char *word)
{
	const char *list = getenv("GDRCP_FAKE_CUDA");
	size_t n = strlen(word);

	while (list && *list) {
		size_t len = strcspn(list, ",");

		if (len >= n && !memcmp(list, word, n) && (len == n || list[n] == '='))
			return len == n ? strdup("") : strndup(list + n + 1, len - n - 1);
		list += len;
		list += *list == ',';
	}
	return NULL;
}

static int has(const char *word)
{
	char *value = fake_mode(word);

	free(value);
	return value != NULL;
}

/* The word's number; otherwise, if the word has no number; absent, if there is
 * no such word. */
static int number(const char *word, int otherwise, int absent)
{
	char *value = fake_mode(word);
	int n = !value ? absent : *value ? atoi(value) : otherwise;

	free(value);
	return n;
}

static void text(const char *word, char *out, size_t bytes)
{
	char *value = fake_mode(word);

	snprintf(out, bytes, "%s", value ? value : "");
	free(value);
}

static int init_result(void)
{
	if (has("none"))
		return CUDA_ERROR_NO_DEVICE;
	if (has("mismatch"))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	return has("stub") ? CUDA_ERROR_STUB_LIBRARY : number("noinit", CUDA_ERROR_UNKNOWN, CUDA_SUCCESS);
}

void fake_modes_read(struct fake_modes *out)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	char *cc = fake_mode("cc");

	memset(out, 0, sizeof *out);
	out->cc_major = 9;
	if (cc)
		sscanf(cc, "%d.%d", &out->cc_major, &out->cc_minor);
	free(cc);
	out->init = init_result();
	out->gpus = number("gpus", 1, 1);
	if (out->gpus > FAKE_GPUS_MAX)
		out->gpus = FAKE_GPUS_MAX;
	out->reversed = has("mixed") && (!order || strcmp(order, "PCI_BUS_ID"));
	out->mig = has("mig");
	out->slowopen_ms = number("slowopen", 1000, 0);
	out->slowload_ms = number("slowload", 1000, 0);
	out->memory_mib = number("memory", 4096, 4096);
	out->late_ms = number("late", 5, 0);
	out->peermem = has("peermem");
	out->dmabuf = !has("nodmabuf") && !out->peermem;
	out->c2c = has("c2c");
	out->prohibited = has("prohibited");
	out->flush = !has("noflush");
	out->oom = has("oom");
	out->unaligned = has("unaligned");
	out->bar1_mib = number("bar1", 256, 256);
	out->bar1full = has("bar1full");
	out->nvml = !has("nonvml");
	out->strict = has("strict");
	out->noload = number("noload", CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 0);
	out->nojit = number("nojit", CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 0);
	out->nocubin = number("nocubin", CUDA_ERROR_NO_BINARY_FOR_GPU, 0);
	out->nomap = has("nomap");
	out->nosync = has("nosync");
	out->novalue = has("novalue");
	out->lostvalue = has("lostvalue");
	out->badlaunch = has("badlaunch");
	out->hang = has("hang");
	text("hangfile", out->hangfile, sizeof out->hangfile);
	text("opengate", out->opengate, sizeof out->opengate);
	text("loadgate", out->loadgate, sizeof out->loadgate);
	text("log", out->log, sizeof out->log);
	out->launches = has("launches");
	out->badkernel = number("badkernel", CUDA_ERROR_LAUNCH_FAILED, 0);
}
