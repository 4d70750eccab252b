// doctor_pages DIRECTORY: writes docs/symptoms anew, after a change of the table.
#include "doctor/log/pages.h"

#include <fmt/format.h>

#include <fstream>

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: doctor_pages DIRECTORY   (docs/symptoms)\n");
    return 2;
  }
  for (const auto& [name, text] : beeline::doctor::log::symptom_pages()) {
    std::ofstream out(std::string(argv[1]) + "/" + name, std::ios::binary);
    if (!(out << text)) {
      fmt::print(stderr, "doctor_pages: cannot write {}/{}\n", argv[1], name);
      return 1;
    }
  }
  return 0;
}
