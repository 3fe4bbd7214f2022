/** How many tensors the record of an opcode has. */
import { PROBE_F32, PROBE_INT8, PROBE_READ, PROBE_TOUCH } from '../ops/probe';

// jobs of the backend itself, beyond the ops
export const PACK: i32 = 1000;
export const UNPACK: i32 = 1001;
export const PACK_NEURONS: i32 = 1002;
export const UNPACK_NEURONS: i32 = 1003;

/** Inputs and outputs of each op, in the order of the opcodes. */
export function numTensors(opcode: i32): i32 {
  switch (opcode) {
    case 0:
      return 3; // embedding-lookup
    case 1:
      return 3; // rms-norm
    case 2:
      return 4; // layer-norm
    case 3:
      return 4; // matmul
    case 4:
      return 4; // rope
    case 5:
      return 2; // softmax
    case 6:
      return 3; // activation
    case 7:
      return 4; // gated-activation
    case 8:
      return 3; // add
    case 9:
      return 2; // soft-cap
    case 10:
    case 11:
      return 3; // gather-rows, position-append
    case 12:
      return 5; // kv-append
    case 13:
      return 9; // attention
    case 14:
      return 11; // attention-partial
    case 15:
      return 9; // attention-merge
    case 16:
      return 3; // attention-finish
    case 17:
      return 2; // arg-max
    case 18:
      return 3; // top-k
    case 19:
      return 2; // log-sum-exp
    case 20:
      return 3; // multiply
    case 21:
      return 2; // scale
    case 22:
      return 3; // scale-rows
    case 23:
      return 2; // slice-columns
    case 24:
      return 4; // expert-route
    case 25:
      return 5; // expert-matmul
    case 26:
      return 3; // expert-combine
    case 27:
      return 7; // short-conv
    case 28:
      return 10; // gated-delta
    case 29:
      return 6; // block-mean-append
    case 30:
      return 7; // block-box-append
    case 31:
      return 3; // key-columns-append
    case 32:
      return 2; // clamp-positions
    case 33:
      return 14; // subquadratic-attention
    case 34:
      return 12; // streaming-attention
    case 35:
      return 15; // sparq-attention
    case 36:
      return 18; // page-topk-attention
    case 37:
      return 11; // oracle-topk-attention
    case 38:
      return 17; // h2o-attention
    case 39:
      return 4; // pool-rows
    case 40:
      return 4; // state-carry
    case 41:
      return 10; // attention-mass
    case 42:
      return 2; // hadamard
    case 43:
      return 4; // active-neurons
    case 44:
      return 7; // sparse-matmul
    case 45:
      return 4; // gather-columns
    case 46:
    case 47:
      return 6; // sparse-combine, sparse-feed-forward
    case 48:
      return 3; // scatter-rows
    case PACK:
    case UNPACK:
    case PACK_NEURONS:
    case UNPACK_NEURONS:
    case PROBE_TOUCH:
    case PROBE_READ:
    case PROBE_F32:
    case PROBE_INT8:
      return 1;
    default:
      return unreachable();
  }
}
