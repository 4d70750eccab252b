#include "cli/ranks/job.h"

#include <array>
#include <charconv>

#include "cli/ranks/host_list.h"

namespace beeline::cli {
namespace {

std::string text_of(const GetVariable& get, std::string_view name) { return get(name).value_or(""); }

Result<int> number_from(std::string_view name, const std::string& text, int least, int most) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < least || value > most)
    return fail(
        Errc::invalid_argument,
        "{}={}: a launcher writes a number from {} to {} there; --no-compare examines this host alone", name,
        text.substr(0, 40), least, most);
  return value;
}

// "123.0;tcp://10.0.0.1,192.168.0.1:51043;tcp6://[fd00::2]:36885": the addresses of mpirun's host, by which
// Open MPI 4's daemons reach it.
std::vector<std::string> hosts_of_uri(std::string_view uri) {
  std::vector<std::string> hosts;
  for (const std::string_view scheme : {"tcp://", "tcp6://"}) {
    const auto at = uri.find(scheme);
    if (at == std::string_view::npos) continue;
    auto list = uri.substr(at + scheme.size());
    list = list.substr(0, list.find(';'));
    list = list.substr(0, list.rfind(':'));
    for (std::size_t start = 0; start < list.size();) {
      const auto end = std::min(list.find(',', start), list.size());
      auto host = std::string(list.substr(start, end - start));
      if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
      hosts.push_back(std::move(host));
      start = end + 1;
    }
  }
  return hosts;
}

void add_open_mpi(const GetVariable& get, Job& job) {
  job.key = text_of(get, "OMPI_MCA_ess_base_jobid") + "/" +
            text_of(get, "OMPI_MCA_orte_precondition_transports") + "/" + text_of(get, "PMIX_NAMESPACE");
  // mpirun is mostly started on the first host of the job.
  job.rank0_hosts = hosts_of_uri(text_of(get, "OMPI_MCA_orte_hnp_uri"));
}

void add_pmi(const GetVariable& get, Job& job) {
  job.key =
      text_of(get, "PMI_JOBID") + "/" + text_of(get, "SLURM_JOB_ID") + "/" + text_of(get, "SLURM_STEP_ID");
}

void add_slurm(const GetVariable& get, Job& job) {
  for (const char* name : {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_UID",
                           "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT"})
    job.key += text_of(get, name) + "/";
  // Whatever the distribution, task 0 is on the first node of its step (srun(1), -m).
  if (auto nodes = expand_host_list(text_of(get, "SLURM_STEP_NODELIST"))) job.nodes = std::move(*nodes);
  if (!job.nodes.empty()) job.rank0_hosts = {job.nodes.front()};
  job.node = text_of(get, "SLURMD_NODENAME");
}

// A launcher that starts its daemons by another one stands before that: the other's variables count daemons.
struct Launcher {
  const char *name, *rank, *size;
  void (*add)(const GetVariable&, Job&);
};
constexpr std::array launchers = {
    Launcher{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", add_open_mpi},
    Launcher{"mpiexec", "PMI_RANK", "PMI_SIZE", add_pmi},
    // SLURM_NTASKS is also in a batch script, where there is one process; this one is srun's.
    Launcher{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", add_slurm},
};

}  // namespace

Result<std::optional<Job>> job_from(const GetVariable& get) {
  for (const auto& launcher : launchers) {
    const auto rank = get(launcher.rank), size = get(launcher.size);
    if (!rank || !size) continue;
    Job job;
    job.launcher = launcher.name;
    BEELINE_TRY(job.size, number_from(launcher.size, *size, 1, most_ranks));
    BEELINE_TRY(job.rank, number_from(launcher.rank, *rank, 0, job.size - 1));
    if (job.size == 1) return std::nullopt;
    launcher.add(get, job);
    // srun starts tasks with its own variables also where it has PMIx or PMI for them.
    if (get("SLURM_STEP_NODELIST") && job.nodes.empty() && launcher.name == std::string_view("mpiexec"))
      add_slurm(get, job);
    job.has_pmix = get("PMIX_NAMESPACE").has_value() && get("PMIX_RANK").has_value();
    if (const auto descriptor = get("PMI_FD")) {
      BEELINE_TRY(job.pmi_descriptor, number_from("PMI_FD", *descriptor, 0, 1 << 20));
    }
    return job;
  }
  return std::nullopt;
}

}  // namespace beeline::cli
