/* A driver library for tests: the functions of NVML that the agent calls, over a file that tests turn and read.

   Built by stub_driver.py as libnvidia-ml.so.1; the file is named by STUB_NVML_STATE.  Its layout is repeated there. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, TOO_SMALL = 7,
       NOT_LOADED = 9, LOST = 15, UNKNOWN = 999 };
enum { MOST_GPUS = 8 };

struct gpu {
  char uuid[96], name[96];
  uint32_t lost, limit_mw, least_mw, most_mw, default_mw, out_of_band_mw; /* 0: no limit from out of band */
  uint32_t lock_low, lock_high, full_mhz, lowest_mhz, step_mhz, memory_mhz; /* lock_high 0: not locked */
  uint32_t busy, busy_mw, idle_mw, temperature, no_clocks;
  uint32_t power_writes, clock_writes;
  uint64_t energy_uj, read_ns, corrected, uncorrected;
};
struct node {
  uint32_t loads, gone, gpus, refuse, ignore_power, ignore_clocks; /* ignore: so many writes to come */
  struct gpu gpu[MOST_GPUS];
};

static struct node *node;
static uint32_t opened; /* the load that this library was opened on; 0: not open */

static struct node *state(void) {
  extern int stub_use(const char *path);
  if (!node && getenv("STUB_NVML_STATE")) stub_use(getenv("STUB_NVML_STATE"));
  return node;
}
int stub_use(const char *path) {
  int file = open(path, O_RDWR);
  if (file < 0) return -1;
  void *found = mmap(NULL, sizeof(struct node), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (found == MAP_FAILED) return -1;
  node = found;
  opened = 0;
  return 0;
}

/* A handle is the place of the GPU, counted from one, over the load that it is of. */
static int find(void *handle, struct gpu **gpu) {
  uintptr_t value = (uintptr_t)handle, at = (value & 0xff) - 1;
  if (!opened) return UNINITIALIZED;
  if (node->gone) return NOT_LOADED;
  if (opened != node->loads || (value >> 8) != node->loads) return UNKNOWN;
  if (at >= node->gpus) return INVALID;
  *gpu = &node->gpu[at];
  return (*gpu)->lost ? LOST : SUCCESS;
}
#define FIND(handle) struct gpu *gpu; int found = find(handle, &gpu); if (found) return found

static uint32_t enforced(struct gpu *gpu) {
  return gpu->out_of_band_mw && gpu->out_of_band_mw < gpu->limit_mw ? gpu->out_of_band_mw : gpu->limit_mw;
}
static uint32_t clock_mhz(struct gpu *gpu) {
  if (!gpu->busy) return gpu->lowest_mhz;
  return gpu->lock_high ? gpu->lock_high : gpu->full_mhz;
}
static uint32_t power(struct gpu *gpu) {
  uint64_t mw = gpu->busy ? (uint64_t)gpu->busy_mw * clock_mhz(gpu) / gpu->full_mhz : gpu->idle_mw;
  return mw < enforced(gpu) ? (uint32_t)mw : enforced(gpu);
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  if (!state() || node->gone) return NOT_LOADED;
  opened = node->loads;
  return SUCCESS;
}
int nvmlShutdown(void) {
  if (!opened) return UNINITIALIZED;
  opened = 0;
  return SUCCESS;
}
const char *nvmlErrorString(int result) {
  static char text[32];
  snprintf(text, sizeof text, "stub error %d", result);
  return text;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
  if (!opened) return UNINITIALIZED;
  *count = node->gpus;
  return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (!opened) return UNINITIALIZED;
  if (index >= node->gpus) return INVALID;
  *handle = (void *)((uintptr_t)(index + 1) | (uintptr_t)node->loads << 8);
  return SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  FIND(handle);
  snprintf(text, size, "%s", gpu->uuid);
  return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  FIND(handle);
  snprintf(text, size, "%s", gpu->name);
  return SUCCESS;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
  FIND(handle);
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", (unsigned)(gpu - node->gpu) + 1);
  return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) { FIND(handle); *mw = power(gpu); return SUCCESS; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
  FIND(handle);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  if (gpu->read_ns) gpu->energy_uj += (now_ns - gpu->read_ns) / 1000 * power(gpu) / 1000 / 1000;
  gpu->read_ns = now_ns;
  *mj = gpu->energy_uj / 1000;
  return SUCCESS;
}
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
  FIND(handle);
  if (sensor != 0) return INVALID;
  *celsius = gpu->temperature;
  return SUCCESS;
}
int nvmlDeviceGetClockInfo(void *handle, unsigned which, unsigned *mhz) {
  FIND(handle);
  *mhz = which == 2 ? gpu->memory_mhz : clock_mhz(gpu);
  return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
  FIND(handle);
  rates[0] = rates[1] = gpu->busy ? 100 : 0;
  return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *bits) {
  FIND(handle);
  *bits = gpu->busy ? (power(gpu) == enforced(gpu) ? 0x4 : 0) : 0x1;
  return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *count) {
  FIND(handle);
  (void)counter;
  *count = kind ? gpu->uncorrected : gpu->corrected;
  return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *mw) { FIND(handle); *mw = gpu->limit_mw; return SUCCESS; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *mw) {
  FIND(handle);
  *mw = gpu->default_mw;
  return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *mw) { FIND(handle); *mw = enforced(gpu); return SUCCESS; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *least, unsigned *most) {
  FIND(handle);
  *least = gpu->least_mw;
  *most = gpu->most_mw;
  return SUCCESS;
}
static int listed(unsigned *count, unsigned *clocks, unsigned have, unsigned first, unsigned step) {
  unsigned room = *count;
  *count = have;
  if (!clocks || room < have) return TOO_SMALL;
  for (unsigned at = 0; at < have; at++) clocks[at] = first - at * step;
  return SUCCESS;
}
int nvmlDeviceGetSupportedMemoryClocks(void *handle, unsigned *count, unsigned *clocks) {
  FIND(handle);
  if (gpu->no_clocks) return NOT_SUPPORTED;
  return listed(count, clocks, 1, gpu->memory_mhz, 1);
}
int nvmlDeviceGetSupportedGraphicsClocks(void *handle, unsigned memory, unsigned *count, unsigned *clocks) {
  FIND(handle);
  if (gpu->no_clocks) return NOT_SUPPORTED;
  if (memory != gpu->memory_mhz) return INVALID;
  unsigned have = (gpu->full_mhz - gpu->lowest_mhz) / gpu->step_mhz + 1;
  return listed(count, clocks, have, gpu->full_mhz, gpu->step_mhz);
}
static int ignored(uint32_t *left) { return *left ? (*left)--, 1 : 0; }
int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned mw) {
  FIND(handle);
  if (node->refuse) return NO_PERMISSION;
  if (mw < gpu->least_mw || mw > gpu->most_mw) return INVALID;
  gpu->power_writes++;
  if (!ignored(&node->ignore_power)) gpu->limit_mw = mw;
  return SUCCESS;
}
int nvmlDeviceSetGpuLockedClocks(void *handle, unsigned low, unsigned high) {
  FIND(handle);
  if (node->refuse) return NO_PERMISSION;
  if (gpu->no_clocks) return NOT_SUPPORTED;
  if (low > high) return INVALID;
  gpu->clock_writes++;
  if (!ignored(&node->ignore_clocks)) gpu->lock_low = low, gpu->lock_high = high;
  return SUCCESS;
}
int nvmlDeviceResetGpuLockedClocks(void *handle) {
  FIND(handle);
  if (node->refuse) return NO_PERMISSION;
  gpu->clock_writes++;
  if (!ignored(&node->ignore_clocks)) gpu->lock_low = gpu->lock_high = 0;
  return SUCCESS;
}
unsigned stub_size(void) { return sizeof(struct node); }
