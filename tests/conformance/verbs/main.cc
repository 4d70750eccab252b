#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kit.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "-d") == 0) conformance::settings().device = argv[i + 1];
    if (std::strcmp(argv[i], "-g") == 0) conformance::settings().gid_index = std::atoi(argv[i + 1]);
  }
  if (!conformance::open_named(conformance::settings().device)) {
    std::fprintf(stderr, "verbs_conformance: no device %s: name one with -d\n",
                 conformance::settings().device.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
