/* A libamd_smi.so for tests: the functions that the agent calls, over a board that tests turn and read.

   Every other function that the package wants at its import is added by stub_amd.py, and is not supported. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 1, NOT_SUPPORTED = 2, NO_PERMISSION = 10, NOT_OPEN = 32 };

struct stub {
  uint32_t refuse, ignore, loads, least_mhz, top_mhz, clock_mhz, watts, perf_level;
  uint64_t cap_uw, energy;
} stub;
static uint32_t opened;
#define OPEN if (!opened || opened != stub.loads) return NOT_OPEN

int amdsmi_init(uint64_t flags) { (void)flags; opened = stub.loads; return SUCCESS; }
int amdsmi_shut_down(void) { opened = 0; return SUCCESS; }
int amdsmi_get_socket_handles(uint32_t *count, void **handles) {
  OPEN;
  *count = 1;
  if (handles) handles[0] = (void *)1;
  return SUCCESS;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
  OPEN;
  (void)socket;
  *count = 1;
  if (handles) handles[0] = (void *)2;
  return SUCCESS;
}
int amdsmi_get_gpu_device_uuid(void *gpu, uint32_t *length, char *text) {
  OPEN;
  (void)gpu;
  snprintf(text, *length, "amd-0");
  return SUCCESS;
}
int amdsmi_get_gpu_device_bdf(void *gpu, uint64_t *bdf) { OPEN; (void)gpu; *bdf = 0x300; return SUCCESS; }
struct asic { char market_name[256]; };
int amdsmi_get_gpu_asic_info(void *gpu, struct asic *asic) {
  OPEN;
  (void)gpu;
  strcpy(asic->market_name, "AMD Instinct MI300X");
  return SUCCESS;
}
struct cap { uint64_t cap, standard, dpm, least, most; };
int amdsmi_get_power_cap_info(void *gpu, uint32_t sensor, struct cap *cap) {
  OPEN;
  (void)gpu;
  if (sensor) return INVALID;
  cap->cap = stub.cap_uw, cap->standard = cap->most = 750000000, cap->least = 200000000;
  return SUCCESS;
}
int amdsmi_set_power_cap(void *gpu, uint32_t sensor, uint64_t uw) {
  OPEN;
  (void)gpu;
  if (stub.refuse) return NO_PERMISSION;
  if (sensor || uw < 200000000 || uw > 750000000) return INVALID;
  if (stub.ignore) stub.ignore--;
  else stub.cap_uw = uw;
  return SUCCESS;
}
struct power { uint64_t socket; uint32_t now, mean; };
int amdsmi_get_power_info(void *gpu, struct power *power) {
  OPEN;
  (void)gpu;
  power->socket = 0xffff, power->now = stub.watts, power->mean = 0xffff;
  return SUCCESS;
}
int amdsmi_get_energy_count(void *gpu, uint64_t *count, float *resolution, uint64_t *at) {
  OPEN;
  (void)gpu;
  *count = stub.energy, *resolution = 15.3f, *at = 0;
  return SUCCESS;
}
int amdsmi_get_temp_metric(void *gpu, int sensor, int metric, int64_t *celsius) {
  OPEN;
  (void)gpu;
  if (sensor != 1 || metric != 0) return NOT_SUPPORTED;
  *celsius = 61;
  return SUCCESS;
}
struct clock { uint32_t now, least, most; };
int amdsmi_get_clock_info(void *gpu, int which, struct clock *clock) {
  OPEN;
  (void)gpu;
  if (which == 4) clock->now = clock->most = 1300, clock->least = 900;
  else if (which == 0) clock->now = stub.clock_mhz, clock->least = stub.least_mhz, clock->most = stub.top_mhz;
  else return NOT_SUPPORTED;
  return SUCCESS;
}
int amdsmi_set_gpu_clk_limit(void *gpu, int which, int limit, uint64_t mhz) {
  OPEN;
  (void)gpu;
  if (stub.refuse) return NO_PERMISSION;
  if (which != 0 || limit != 1) return INVALID;
  if (stub.ignore) stub.ignore--;
  else stub.top_mhz = (uint32_t)mhz;
  return SUCCESS;
}
int amdsmi_get_gpu_activity(void *gpu, uint32_t *activity) {
  OPEN;
  (void)gpu;
  activity[0] = 98, activity[1] = activity[2] = 0xffff;
  return SUCCESS;
}
