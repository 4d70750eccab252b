// docs/symptoms and the table of the diagnosis say the same.
#include "doctor/log/pages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "doctor/log/kinds.h"
#include "samples.h"

namespace beeline::doctor::log {
namespace {

TEST(Pages, AreWhatTheTableSays) {
  for (const auto& [name, text] : symptom_pages())
    EXPECT_EQ(read_file(std::string(BEELINE_SYMPTOMS) + "/" + name), text)
        << name << " is old: build/bin/doctor_pages docs/symptoms writes it anew";
}

TEST(Pages, EachDiagnosisHasOneAndEachPageHasADiagnosis) {
  std::set<std::string> pages, diagnoses = {"README.md"};
  for (const auto& file : std::filesystem::directory_iterator(BEELINE_SYMPTOMS))
    pages.insert(file.path().filename().string());
  for (const auto id : kinds()) EXPECT_TRUE(diagnoses.insert(std::string(id) + ".md").second) << id;
  EXPECT_EQ(pages, diagnoses);
}

TEST(Pages, ContentsNameEachPageUnderItsError) {
  const auto pages = symptom_pages();
  for (const Rule& row : rules()) {
    EXPECT_NE(pages.at("README.md").find("[" + std::string(row.error) + "](" + std::string(row.id) + ".md)"),
              std::string::npos);
    EXPECT_EQ(pages.at(std::string(row.id) + ".md").find("# " + std::string(row.error)), 0u);
  }
}

TEST(Rules, AreComplete) {
  for (const Rule& row : rules()) {
    EXPECT_FALSE(row.causes.empty()) << row.id;
    EXPECT_FALSE(row.meaning.empty()) << row.id;
    EXPECT_FALSE(row.next.empty()) << row.id;
    EXPECT_FALSE(row.source.empty()) << row.id;
  }
}

// What a page gives as the error's text is an error that the reader knows.
TEST(Rules, TheirExampleTextsAreRecognised) {
  for (const Rule& row : rules()) {
    std::istringstream texts(std::string(row.also));
    for (std::string text; std::getline(texts, text);) {
      if (text.find("…") != std::string::npos || text.find(' ') == std::string::npos) continue;
      const std::string kind = first_kind(diagnose_text(text + "\n"));
      if (kind == "-") continue;  // half of a message, or one that means something only beside others
      EXPECT_EQ(kind, row.id) << text;
    }
  }
}

}  // namespace
}  // namespace beeline::doctor::log
