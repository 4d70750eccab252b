#include "cli/ranks/job.h"

#include <gtest/gtest.h>

#include <map>

#include "cli/ranks/host_list.h"

namespace beeline::cli {
namespace {

using Strings = std::vector<std::string>;

TEST(HostList, ExpandsWhatSlurmWrites) {
  const std::map<std::string, Strings> rows = {
      {"n1", {"n1"}},
      {"a,b", {"a", "b"}},
      {"n[01-03,7],login1", {"n01", "n02", "n03", "n7", "login1"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"r[1-2]n[1,3]-ib", {"r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib"}},
      {"", {}},
  };
  for (const auto& [text, hosts] : rows) {
    const auto expanded = expand_host_list(text);
    ASSERT_TRUE(expanded) << text;
    EXPECT_EQ(*expanded, hosts) << text;
  }
}

TEST(HostList, RefusesWhatIsNone) {
  for (const char* text : {"n[", "n]", "n[]", "n[1", "n[1-]", "n[-1]", "n[3-1]", "n[a-b]", "n[1-99999999]",
                           "n[1-60000]m[1-60000]", "n[99999999999]"})
    EXPECT_FALSE(expand_host_list(text)) << text;
}

Result<std::optional<Job>> job_of(const std::map<std::string, std::string>& variables) {
  return job_from([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

const std::map<std::string, std::string> srun = {
    {"SLURM_PROCID", "5"},     {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NODELIST", "n[7-8]"},
    {"SLURMD_NODENAME", "n8"}, {"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "0"}};

TEST(Job, OfSrun) {
  const auto job = job_of(srun);
  ASSERT_TRUE(job && *job);
  EXPECT_EQ((*job)->launcher, "srun");
  EXPECT_EQ((*job)->rank, 5);
  EXPECT_EQ((*job)->size, 8);
  EXPECT_EQ((*job)->rank0_hosts, Strings{"n7"});
  EXPECT_EQ((*job)->nodes, (Strings{"n7", "n8"}));
  EXPECT_EQ((*job)->node, "n8");
  EXPECT_FALSE((*job)->has_pmix);
  auto next_step = srun;
  next_step["SLURM_STEP_ID"] = "1";
  EXPECT_NE((*job_of(next_step))->key, (*job)->key);
}

TEST(Job, OfMpirunWhoseDaemonsSrunStarted) {
  auto variables = srun;
  variables.insert(
      {{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"PMIX_NAMESPACE", "946733057"},
       {"PMIX_RANK", "1"},
       {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.0.0.1,192.168.0.1:51043;tcp6://[fd00::2]:36885"}});
  const auto job = job_of(variables);
  ASSERT_TRUE(job && *job);
  EXPECT_EQ((*job)->launcher, "mpirun");
  EXPECT_EQ((*job)->size, 2);
  EXPECT_TRUE((*job)->has_pmix);
  EXPECT_EQ((*job)->rank0_hosts, (Strings{"10.0.0.1", "192.168.0.1", "fd00::2"}));
}

TEST(Job, OfHydra) {
  const auto job = job_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"PMI_FD", "6"}});
  ASSERT_TRUE(job && *job);
  EXPECT_EQ((*job)->pmi_descriptor, 6);
  EXPECT_TRUE((*job)->rank0_hosts.empty());
}

TEST(Job, NoneWhereNothingElseWasStarted) {
  EXPECT_FALSE(*job_of({}));
  EXPECT_FALSE(*job_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  // A batch script: one process, whatever will be started.
  EXPECT_FALSE(*job_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "n[1-8]"}}));
}

TEST(Job, NonsenseIsNamed) {
  for (const char* bad : {"", "x", "-1", "8", "1x", "99999999999999999999"}) {
    auto variables = srun;
    variables["SLURM_PROCID"] = bad;
    const auto job = job_of(variables);
    ASSERT_FALSE(job) << bad;
    EXPECT_NE(job.error().message.find("SLURM_PROCID="), std::string::npos) << job.error().message;
  }
}

}  // namespace
}  // namespace beeline::cli
