#include "verbs/joined/joined_provider.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/log.h"

namespace beeline::verbs {
namespace {

// Which device belongs to which provider. Filled by listing; an open context keeps its device
// alive, so an entry that is asked for is never stale.
class Owners {
 public:
  explicit Owners(Provider* fallback) : fallback_(fallback) {}
  void set(const ibv_device* device, Provider* provider) {
    const std::unique_lock guard(lock_);
    owners_[device] = provider;
  }
  Provider& of(const ibv_device* device) const {
    const std::shared_lock guard(lock_);
    const auto found = owners_.find(device);
    return *(found == owners_.end() ? fallback_ : found->second);
  }

 private:
  mutable std::shared_mutex lock_;
  std::map<const ibv_device*, Provider*> owners_;
  Provider* fallback_;
};

class JoinedProvider final : public Provider {
 public:
  explicit JoinedProvider(std::vector<std::unique_ptr<Provider>> providers)
      : providers_(std::move(providers)), owners_(providers_.back().get()) {}

  const char* name() const override { return "joined"; }
  const char* provider_name(ibv_device* device) override { return owners_.of(device).provider_name(device); }

  ibv_device** get_device_list(int* count) override {
    std::vector<Part> parts;
    std::vector<ibv_device*> all;
    for (const auto& provider : providers_) {
      int found = 0;
      ibv_device** list = provider->get_device_list(&found);
      if (list == nullptr) {
        complain(*provider, errno);
        continue;
      }
      for (int i = 0; i < found; ++i) owners_.set(list[i], provider.get());
      all.insert(all.end(), list, list + found);
      parts.push_back({provider.get(), list});
    }
    if (count != nullptr) *count = static_cast<int>(all.size());
    auto list = std::make_unique<ibv_device*[]>(all.size() + 1);
    std::copy(all.begin(), all.end(), list.get());
    const std::lock_guard guard(lock_);
    lists_[list.get()] = std::move(parts);
    return list.release();
  }
  void free_device_list(ibv_device** list) override {
    std::vector<Part> parts;
    {
      const std::lock_guard guard(lock_);
      const auto found = lists_.find(list);
      if (found == lists_.end()) return;
      parts = std::move(found->second);
      lists_.erase(found);
    }
    for (const Part& part : parts) part.provider->free_device_list(part.list);
    delete[] list;
  }

  const char* get_device_name(ibv_device* device) override {
    return owners_.of(device).get_device_name(device);
  }
  __be64 get_device_guid(ibv_device* device) override { return owners_.of(device).get_device_guid(device); }
  ibv_context* open_device(ibv_device* device) override { return owners_.of(device).open_device(device); }
  int close_device(ibv_context* context) override { return of(context).close_device(context); }
  int query_device(ibv_context* context, ibv_device_attr* out) override {
    return of(context).query_device(context, out);
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) override {
    return of(context).query_port(context, port, out);
  }
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out) override {
    return of(context).query_gid_ex(context, port, index, out);
  }

  ibv_pd* alloc_pd(ibv_context* context) override { return of(context).alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return of(pd->context).dealloc_pd(pd); }
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override {
    return of(pd->context).reg_mr(pd, address, bytes, access);
  }
  int dereg_mr(ibv_mr* mr) override { return of(mr->context).dereg_mr(mr); }

  void* allocate_memory(ibv_context* context, std::size_t bytes) override {
    return of(context).allocate_memory(context, bytes);
  }
  int free_memory(ibv_context* context, void* memory) override {
    return of(context).free_memory(context, memory);
  }

  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    return of(context).create_comp_channel(context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    return of(channel->context).destroy_comp_channel(channel);
  }
  ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                    int vector) override {
    return of(context).create_cq(context, cqe, cq_context, channel, vector);
  }
  int destroy_cq(ibv_cq* cq) override { return of(cq->context).destroy_cq(cq); }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return of(channel->context).get_cq_event(channel, cq, cq_context);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) override { of(cq->context).ack_cq_events(cq, count); }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) override {
    return of(pd->context).create_qp(pd, attr);
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    return of(qp->context).modify_qp(qp, attr, mask);
  }
  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) override {
    return of(qp->context).query_qp(qp, attr, mask, init);
  }
  int destroy_qp(ibv_qp* qp) override { return of(qp->context).destroy_qp(qp); }
  bool writes_last_word_last(ibv_qp* qp) override { return of(qp->context).writes_last_word_last(qp); }
  int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, std::uint32_t flags) override {
    return of(qp->context).query_qp_data_in_order(qp, op, flags);
  }

  // The call that failed went to one of them.
  std::string why() override {
    std::string all;
    for (const auto& provider : providers_)
      if (std::string one = provider->why(); !one.empty()) all = std::move(one);
    return all;
  }

 private:
  struct Part {
    Provider* provider;
    ibv_device** list;
  };

  Provider& of(const ibv_context* context) const { return owners_.of(context->device); }

  void complain(Provider& provider, int error) {
    const std::string why = provider.why();
    if (complained_.exchange(true)) return;
    logger()->warn("the devices of the {} provider cannot be used: {}", provider.name(),
                   why.empty() ? std::strerror(error) : why);
  }

  const std::vector<std::unique_ptr<Provider>> providers_;
  Owners owners_;
  std::mutex lock_;
  std::map<ibv_device**, std::vector<Part>> lists_;  // handed out, not freed yet
  std::atomic<bool> complained_{false};
};

}  // namespace

std::unique_ptr<Provider> make_joined_provider(std::vector<std::unique_ptr<Provider>> providers) {
  return std::make_unique<JoinedProvider>(std::move(providers));
}

}  // namespace beeline::verbs
