// The software card as verbs. One class, since libibverbs' exports are one list; its parts are in the
// file of the object that they are about.
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "verbs/common/reason.h"
#include "verbs/full_provider.h"
#include "verbs/soft/convert.h"
#include "verbs/soft/graveyard.h"
#include "verbs/soft/objects.h"

namespace beeline::verbs::soft {

template <class T>
T* fail_null(int error) {
  errno = error;
  return nullptr;
}
// Functions that answer -1.
inline int fail_minus_one(int error) {
  errno = error;
  return -1;
}

class SoftProvider final : public FullProvider {
 public:
  explicit SoftProvider(nic::Card& card);
  ~SoftProvider() override;

  const char* name() const override { return "soft"; }
  std::string why() override { return reason_.take(); }
  bool owns_device(const ibv_device* device) override;
  bool owns(const void* object) override { return live_.remembers(object); }

  // Alive, of this kind, and nobody is destroying it. `object` may be anything.
  bool holds(ibv_context* object) const { return live_.holds(object, Kind::context); }
  template <class Base>
  bool holds(Base* object) const {
    return live_.holds(object, std::remove_pointer_t<decltype(mine(object))>::kind);
  }

  // devices.cc
  ibv_device** get_device_list(int* count) override;
  void free_device_list(ibv_device** list) override { delete[] list; }
  const char* get_device_name(ibv_device* device) override { return device->name; }
  __be64 get_device_guid(ibv_device* device) override;
  int get_device_index(ibv_device* device) override;
  ibv_context* open_device(ibv_device* device) override;
  int close_device(ibv_context* context) override;
  int close_device_with_all(ibv_context* context) override;
  int query_device(ibv_context* context, ibv_device_attr* out) override;
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) override;
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out) override;
  int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* out) override;
  int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* out) override;
  int get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) override;
  ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                          std::uint32_t flags, std::size_t entry_bytes) override;
  int get_async_event(ibv_context* context, ibv_async_event* out) override;
  void ack_async_event(ibv_async_event* event) override;

  // regions.cc
  ibv_pd* alloc_pd(ibv_context* context) override;
  int dealloc_pd(ibv_pd* pd) override;
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override;
  ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                      unsigned access) override;
  int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t bytes, int access) override;
  int dereg_mr(ibv_mr* mr) override;
  void* allocate_memory(ibv_context* context, std::size_t bytes) override;
  int free_memory(ibv_context* context, void* memory) override;
  // windows.cc
  ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
  int dealloc_mw(ibv_mw* mw);

  // completion_queues.cc
  ibv_comp_channel* create_comp_channel(ibv_context* context) override;
  int destroy_comp_channel(ibv_comp_channel* channel) override;
  ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                    int vector) override;
  ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
  int resize_cq(ibv_cq* cq, int cqe) override;
  int destroy_cq(ibv_cq* cq) override;
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override;
  void ack_cq_events(ibv_cq* cq, unsigned count) override;

  // shared_queues.cc
  ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) override;
  int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override;
  int query_srq(ibv_srq* srq, ibv_srq_attr* out) override;
  int destroy_srq(ibv_srq* srq) override;

  // address_handles.cc
  ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) override;
  int destroy_ah(ibv_ah* ah) override;

  // queue_pairs.cc
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) override;
  ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override;
  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) override;
  int destroy_qp(ibv_qp* qp) override;
  int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, std::uint32_t flags) override;
  bool writes_last_word_last(ibv_qp* qp) override;
  ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) override;

 private:
  // Keeps the sentence that an errno value cannot carry.
  int note(const Error& error);
  void raise_port_event(int device, nic::PortEvent event);

  template <class T>
  auto* adopt(std::unique_ptr<T> object, Context* owner);
  // `end` gives the card's part back; while it fails the object stays as it is.
  template <class Base, class End>
  int release(Base* object, End end);

  // Destroys, one after the other, what of this type was made from the context.
  template <class Base>
  void sweep(ibv_context* context, int (SoftProvider::*destroy)(Base*));

  int check_queues(const Pd& pd, const ibv_qp_init_attr& attr) const;
  Cq* make_cq(Context* owner, std::uint32_t cqe, void* cq_context, ibv_comp_channel* channel,
              std::uint32_t vector);

  nic::Card& card_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::mutex open_contexts_mutex_;
  std::vector<Context*> open_contexts_;
  Registry live_;
  Graveyard graveyard_;
  Reason reason_;
  std::atomic<std::uint32_t> address_handles_{0};
};

inline ibv_pd* to_verbs(Pd* object) { return object; }
inline ibv_mr* to_verbs(Mr* object) { return object; }
inline ibv_cq* to_verbs(Cq* object) { return object; }
inline ibv_srq* to_verbs(Srq* object) { return object; }
inline ibv_ah* to_verbs(Ah* object) { return object; }
inline ibv_mw* to_verbs(Mw* object) { return object; }
inline ibv_comp_channel* to_verbs(Channel* object) { return object; }
inline ibv_qp* to_verbs(Qp* object) { return &object->qp_base; }

template <class T>
auto* SoftProvider::adopt(std::unique_ptr<T> object, Context* owner) {
  auto* handle = to_verbs(object.release());
  handle->context = owner->get();
  mine(handle)->owner = owner;
  ++owner->objects;
  live_.add(handle, T::kind, owner->get());
  return handle;
}

template <class Base, class End>
int SoftProvider::release(Base* object, End end) {
  using T = std::remove_pointer_t<decltype(mine(object))>;
  if (!live_.claim(object, T::kind)) return EINVAL;
  std::unique_ptr<T> dead(mine(object));
  if (const Result<void> ended = end(*dead); !ended) {
    (void)dead.release();
    live_.revive(object);
    return note(ended.error());
  }
  live_.remove(object);
  --dead->owner->objects;
  if constexpr (requires { dead->alive.end(); }) {
    dead->alive.end();
    graveyard_.bury(std::move(dead));
  }
  return 0;
}

}  // namespace beeline::verbs::soft
