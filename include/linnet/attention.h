#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linnet/context.h"
#include "linnet/export.h"
#include "linnet/feature_map.h"
#include "linnet/mask.h"
#include "linnet/similarity.h"
#include "linnet/tensor.h"

namespace linnet {

/// What the weights A_ij of out_i = Σ_j A_ij v_j are, over the keys j that the mask shows to query i:
/// - linear: φ(q_i)·φ(k_j) over its sum + ε, in linear time (Katharopoulos et al. 2020, equations 5 and 6,
///   causal 9 to 12, as a recurrence 16 to 20);
/// - softmax: exp(scale q_i·k_j) over its sum (Vaswani et al. 2017, equation 1);
/// - kernel: sim(q_i, k_j) over its sum + ε, for any similarity (Katharopoulos et al. 2020, equation 3);
/// - linformer: softmax over the compressed keys E K and values F V (Wang et al. 2020, equation 7);
/// - lsh: softmax over the keys with the hash of the query (Kitaev et al. 2020, section 2);
/// - local: softmax over a window of keys;
/// - strided: softmax over a sparse pattern of keys (Child et al. 2019, section 4.3).
enum class Family { linear, softmax, kernel, linformer, lsh, local, strided };

/// Whether the linear family divides by φ(q)ᵀz + ε or leaves the sum as it is.
enum class Normalise { sum, none };

/// How the states of the linear family sum over tokens: with one f32 number per sum, or with two. The second
/// number collects the rounding errors of the first (Kahan 1965), so that ten million tokens do not drift.
enum class StateSums { plain, compensated };

/// Pattern of the strided family (Child et al. 2019, section 4.3) with stride s, over the keys up to the
/// query. strided: the last s keys, and every s-th key before them. fixed: the query's own block of s keys,
/// and the last c keys of every earlier block.
enum class SparsePattern { strided, fixed };

/// Options of the linear family. A LogScaledMap takes an ε of 0 whatever `epsilon` is.
struct LinearOptions {
  std::shared_ptr<const FeatureMap> feature_map = elu_map();
  Normalise normalise = Normalise::sum;
  float epsilon = 1e-6f;                    ///< added to the denominator; at least 0
  StateSums sums = StateSums::compensated;  ///< precision of the states that it makes
};

/// Options of the kernel family.
struct KernelOptions {
  std::shared_ptr<const Similarity> similarity = exponential_similarity();
  Normalise normalise = Normalise::sum;
  float epsilon = 1e-6f;  ///< added to the denominator; at least 0
};

/// Options of the local family: query i sees the keys i − left … i + right. There are as many queries as
/// keys.
struct LocalOptions {
  std::int64_t left = 128;
  std::int64_t right = 0;  ///< 0 for the recurrent form
};

/// Options of the strided family.
struct StridedOptions {
  SparsePattern pattern = SparsePattern::strided;
  std::int64_t stride = 0;   ///< s; 0 means √N, rounded up to a multiple of 32
  std::int64_t summary = 8;  ///< fixed pattern: c, from 1 to s
};

/// The stride of sequences of `length` tokens, at least 0, where none is given: √N, rounded up to a multiple
/// of 32, and at least 32.
LINNET_API std::int64_t default_stride(std::int64_t length);

/// How the lsh family (Kitaev et al. 2020) selects the keys of a query.
struct LshOptions {
  /// Buckets of the hash of a round: 1, or an even number. 0 means the least power of two with at most
  /// `chunk` tokens per bucket on average.
  std::int64_t buckets = 0;
  std::int64_t chunk = 64;  ///< tokens, sorted by bucket, per chunk; it attends to itself and the one before
  std::int64_t rounds = 1;  ///< rounds of hashing, 1 … 64
  std::uint64_t seed = 0;   ///< seed of the random rotations, which also depend on `layer`, round and head
};

struct SoftmaxOptions {
  /// Of the keys and values that its states keep: f32, or bf16 for half the memory, rounded to the nearest.
  DType cache = DType::f32;
};

/// The attention of a layer. A family ignores the options of the other families.
struct AttentionOptions {
  Family family = Family::linear;
  float scale = 0;  ///< softmax, linformer, lsh, local, strided: factor of q·k; 0 means 1/√E
  int layer = 0;    ///< passed to the feature map; part of the seed of lsh
  LinearOptions linear = {};
  SoftmaxOptions softmax = {};
  KernelOptions kernel = {};
  LocalOptions local = {};
  StridedOptions strided = {};
  LshOptions lsh = {};
};

/// E, M and H of a layer.
struct HeadShape {
  std::int64_t heads = 1;
  std::int64_t head_dim = 1;   ///< E, of queries and keys
  std::int64_t value_dim = 1;  ///< M, of values
};

/// The state of the recurrent form: one slot per stream, f32 unless the options say otherwise. A slot of the
/// linear family has a fixed size, H·(F·M + F) floats, or twice that with compensated sums. Softmax keeps
/// every key and value, H·(E + M) floats per token, or as many bf16. `local` keeps the last left + 1 of them,
/// `strided` those that a later query may see. A state belongs to the Attention that made it: sizes and the
/// kind of feature map are checked, but not that it is the same map. One thread at a time may use a slot. The
/// functions throw Error for a slot that the state does not have.
///
/// `save` writes and `restore` reads these arrays, row-major and f32:
/// - linear: S [H, F, M] = Σ φ(k) vᵀ, then z [H, F] = Σ φ(k). With compensated sums a second S and z follow,
///   which are to be subtracted from the first ones. With a LogScaledMap [H, 2] follows: the sum of a head's
///   two floats is M, and its S and z stand for e^M times their numbers.
/// - softmax: keys [H, n, E], then values [H, n, M] of all n tokens, the oldest first.
/// - local: the same arrays for the last min(n, left + 1) tokens.
/// - strided: the same arrays for all tokens. With the fixed pattern: for the last `summary` tokens of each
///   full block, then for the tokens of the block that is not full.
///
/// In the caller's memory (`make_state`) slot i begins at float i · `state_floats`:
/// - linear: the arrays that `save` writes.
/// - softmax: keys [H, capacity, E], then values [H, capacity, M], both f32 or both bf16. The first
///   n tokens of a head are in use. 16 floats follow, which vector loads may read and which have no meaning.
/// - strided: the same, with the tokens in the order of `save`. With the fixed pattern there are
///   ⌊capacity/s⌋ c + s of them in place of `capacity`, where that is less.
/// - local: the same with left + 1 tokens, where token t of the stream is at row t mod (left + 1).
/// A linear slot at position 0 is empty whatever its memory holds.
class LINNET_API State {
 public:
  /// Largest position that `restore` takes. No sum of it and a length overflows, and it is exact as a double.
  static constexpr std::int64_t most_position = std::int64_t{1} << 53;

  virtual ~State() = default;

  virtual std::int64_t slots() const = 0;

  /// Tokens that a slot has seen. After a pass with segments the linear family counts all of them, the others
  /// those of the last segment alone.
  virtual std::int64_t position(std::int64_t slot) const = 0;

  /// Numbers that `save` writes of a slot at that position, and that `restore` reads. Throws Error where they
  /// would not fit into memory.
  virtual std::int64_t saved_floats(std::int64_t position) const = 0;

  /// Bytes that the slot's tokens need now (not what is reserved for more of them).
  virtual std::size_t bytes(std::int64_t slot) const = 0;

  /// Numbers of the slot's gradient (`AttentionGradients::initial` and `final`). They lie as `save` writes
  /// them: dS [H, F, M], then dz [H, F] of the linear family, dK and dV of the tokens that the others hold.
  virtual std::int64_t gradient_floats(std::int64_t slot) const = 0;

  /// Clears the slot for a new stream.
  virtual void reset(std::int64_t slot) = 0;

  /// Takes the memory that the slot needs at position `tokens`, so that it gets there without taking more.
  /// Nothing to do in families whose state has a fixed size. The slot's contents do not change, also where it
  /// throws: Error where the caller's memory is too small, std::bad_alloc.
  virtual void reserve(std::int64_t slot, std::int64_t tokens) = 0;

  /// Copies `source_slot` of `source` to `slot`. The same Attention made `source`, which may be this state.
  /// Throws Error for a source of another shape or family and where the caller's memory is too small,
  /// std::bad_alloc where memory is short; the slot is then unchanged.
  virtual void copy(std::int64_t slot, const State& source, std::int64_t source_slot) = 0;

  /// `save` writes the numbers of the slot, `saved_floats` of its position, in the layout that the family
  /// documents. `restore` reads them; `position` is the number of tokens that they represent, from 0 to
  /// `most_position`. Both throw Error when the count or the position does not fit. The slot is then
  /// unchanged.
  virtual void save(std::int64_t slot, std::span<float> to) const = 0;
  virtual void restore(std::int64_t slot, std::span<const float> from, std::int64_t position) = 0;
};

/// Inputs of the parallel form: query [B, L, H, E], key [B, S, H, E], value [B, S, H, M], all f32 or all
/// bf16; outer strides are free. Sums are f32 for either.
struct AttentionInputs {
  ConstFloatView query = {}, key = {}, value = {};
  Mask mask = Mask::full();
  /// The state that the queries continue, B slots; nullptr for none. Only for masks that take a state.
  const State* initial = nullptr;
  /// Position of the first query in its sequence, passed to the feature map.
  std::int64_t position = 0;
  /// γ [H], 0 < γ ≤ 1: the weight of a token falls by the factor γ with each later token, S_i = γ S_{i−1} +
  /// φ(k_i) v_iᵀ and the same for z (Sun et al. 2023, equation 6, with a normaliser). Optional; only for the
  /// linear family with a causal mask.
  View<const float> decay = {};
  /// E and F of linformer (Wang et al. 2020, equation 7), [H, k, N], or [1, k, N] for all heads. They may be
  /// the same view. The compressed keys and values are E K and F V, for at most N tokens. Shorter inputs use
  /// the leading columns. Other families ignore both.
  View<const float> key_projection = {}, value_projection = {};
};

/// out [B, L, H, M], of the type of the inputs. No output shares memory with an input or another output: a
/// family may write an output before it has read all of its inputs. `normaliser` [B, L, H] is optional and
/// receives what `backward` needs. For the linear and the kernel family this is the denominator, or with a
/// LogScaledMap its logarithm without the log-scale of the query; 1 without normalisation. The linear family
/// writes infinity where the denominator gives zeros: where it vanishes, and with a LogScaledMap where it is
/// not positive. The kernel family writes 1 where it is 0, and what it divides by it is 0 then. For the other
/// families it is the log-sum-exp. `final` is optional and receives the state after the last key, B
/// slots; padding is not part of it. It may be the initial state. Only for masks that take a state. The
/// linear family takes an empty `out` where `final` is given, and computes the state alone, without the
/// queries.
struct AttentionOutputs {
  FloatView out = {};
  View<float> normaliser = {};
  State* final = nullptr;
  /// Optional: the linear family adds the number of queries and heads that see a key and have no positive
  /// denominator. Their output means nothing. A LogScaledMap gives zeros for them.
  std::int64_t* non_positive = nullptr;
  /// Optional: the same for those among them whose denominator vanishes, whose output and gradients are
  /// zeros: below the smallest normal number, or with a LogScaledMap where Σ y_q·y_k e^(s_k − M) is below
  /// e^-55, M the largest s of the keys that the query sees. In exact numbers it need not be 0.
  std::int64_t* vanished = nullptr;
};

/// Gradients of the inputs, of the same shapes and types; assigned. They share no memory with the inputs.
/// `decay` and the projections are optional. The linear family takes empty views of query, key and value
/// where `initial` is given, and computes that gradient alone. If both projections are the same view, its
/// gradient is the sum of these two. The caller adds them, and their memory must differ.
///
/// Gradients of states carry a loss from one call back to the call before it: for truncated back-propagation,
/// or for a sequence that is spread over several machines. `final` [B, G] is an input: the gradient of the
/// state that `forward` left; zero where it is left out. `initial` [B, G] is assigned: the gradient of the
/// initial state, which must be given. Row b has the layout that `State::gradient_floats` describes for slot
/// b. G may be larger than a slot needs; the numbers after it are neither read nor written. The two must not
/// share memory. Only masks that take a state have them.
///
/// In the linear family the gradient is that of S and z, with compensated sums of the difference of their two
/// parts. An empty slot counts as S = 0, z = 0. With a LogScaledMap a state stands for e^M S and e^M z, on
/// which the loss depends; the gradient is that of S and z with M held constant, which is e^M times the
/// gradient of what they stand for, and 0 for an empty slot (M = −∞). So the gradient `initial` of one call
/// is the gradient `final` of the call before it, as long as the state is handed on unchanged.
struct AttentionGradients {
  FloatView query = {}, key = {}, value = {};
  View<float> decay = {};
  View<float> key_projection = {}, value_projection = {};
  View<float> initial = {};
  View<const float> final = {};
};

/// An attention family with its options. Every family has the same functions. Immutable, shared by threads.
/// `context` does the work and holds the working memory of each call (context.h).
class LINNET_API Attention {
 public:
  virtual ~Attention() = default;

  /// The parallel form. A query that sees no key gives zeros.
  /// Throws Error when shapes or mask do not fit, before anything is written.
  virtual void forward(Context& context, const AttentionOutputs& outputs,
                       const AttentionInputs& inputs) const = 0;

  /// Gradients of a loss from `grad_out` [B, L, H, M], with the inputs of `forward` and what it put into
  /// `out` and `normaliser`. The initial state must be as `forward` met it. Throws Error when something does
  /// not fit, before anything is written.
  virtual void backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                        const AttentionInputs& inputs, ConstFloatView out,
                        View<const float> normaliser) const = 0;

  /// Slots for `slots` streams, all at position 0. `capacity` tokens are reserved where memory grows with the
  /// tokens (softmax, strided); more are taken as they come. Throws Error for a family without a recurrent
  /// form.
  ///
  /// With `memory`, at least slots · `state_floats` floats of any alignment, the state lives there, in the
  /// layout that `State` documents: what was in it is lost, and it must outlive the state. The capacity is
  /// fixed then: a call that would go beyond it throws Error and leaves the state as it was. Numbers may be
  /// read there between calls, and those of the linear family changed; the position is the state's own.
  /// Throws Error where `memory` is too small.
  virtual std::unique_ptr<State> make_state(std::int64_t slots, const HeadShape& shape,
                                            std::int64_t capacity = 0,
                                            std::span<float> memory = {}) const = 0;

  /// Floats that a slot takes in the caller's memory. Throws Error as `make_state` does.
  virtual std::int64_t state_floats(const HeadShape& shape, std::int64_t capacity = 0) const = 0;

  /// One token for each of n streams: row i of query [n, H, E], key [n, H, E], value [n, H, M] and out [n, H,
  /// M] belongs to slot slots[i], each slot at most once. `decay` is γ [H] as in `AttentionInputs`. The
  /// linear and softmax families share the work among the context's threads, as `forward` does, the others
  /// run on the calling thread; different contexts may step different slots of one state at once. Throws
  /// Error where shapes, slots or decay do not fit or the caller's memory is full, and std::bad_alloc where
  /// memory for growing states is short; no slot has then moved.
  virtual void step(Context& context, View<float> out, View<const float> query, View<const float> key,
                    View<const float> value, State& state, std::span<const std::int64_t> slots,
                    View<const float> decay = {}) const = 0;

  /// Attention to all tokens that a state holds, which does not change: the recurrent form of cross
  /// attention, whose state is what `forward` over the tokens of the source left. Row i of query [n, H, E]
  /// and out [n, H, M] belongs to slot slots[i]; a slot may be named several times. `positions` [n], where
  /// given, are those of the queries, told to the feature map; otherwise all are 0. A slot without tokens
  /// gives zeros. The work is shared as in `step`. The linear and softmax families have it; others throw
  /// Error. Throws Error where shapes, slots or positions do not fit.
  virtual void read(Context& context, View<float> out, View<const float> query, const State& state,
                    std::span<const std::int64_t> slots, std::span<const std::int64_t> positions = {}) const;
};

/// The attention of the family that `options` names. Throws Error for invalid options.
LINNET_API std::unique_ptr<Attention> make_attention(const AttentionOptions& options);

/// A row of the table of families that `linnet families` prints.
struct FamilyInfo {
  Family family = Family::linear;
  std::string name;
  std::string masks;
  bool recurrent = true;
  std::string cost;                ///< FLOPs per query and head, forward
  std::string training;            ///< the same, forward and backward
  std::string state;               ///< floats per head
  bool takes_feature_map = false;  ///< whether it uses LinearOptions::feature_map
  bool takes_decay = false;        ///< whether AttentionInputs::decay is allowed
  bool takes_projections =
      false;                      ///< whether AttentionInputs::key_projection and value_projection are needed
  bool keys_are_queries = false;  ///< whether key must be the same view as query
};
LINNET_API std::span<const FamilyInfo> family_table();

/// The family of that name. Throws UsageError, naming the nearest known one.
LINNET_API Family find_family(const std::string& name);
LINNET_API const char* name_of(Family family);

}  // namespace linnet
