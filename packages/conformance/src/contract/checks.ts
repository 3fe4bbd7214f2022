/** The contract of `Backend` and `Executable` besides numerical results. Each check returns failures, one line each. */
import { checkCopies, checkCopyOrder, checkRefusedCopies } from './copy.js';
import { checkLimits, checkStaysAlive } from './device.js';
import type { ContractCheck } from './fixtures.js';
import { checkForeignBuffers, checkFreedBuffers, checkMemory, checkSharedBuffers } from './memory.js';
import {
  checkAbort,
  checkDeterminism,
  checkDispose,
  checkEventLoop,
  checkOneRunAtATime,
  checkProfile,
  checkReads,
  checkScalarsFit,
  checkUnknownOps,
} from './runs.js';
import { checkSplitSums } from './split-sums.js';

/** By what they check. */
export const contractChecks: Readonly<Record<string, ContractCheck>> = {
  'unknown ops are refused': checkUnknownOps,
  'scalars that do not fit are refused': checkScalarsFit,
  'memory is written and read in range': checkMemory,
  'buffers of another backend, missing or too small are refused': checkForeignBuffers,
  'freed buffers are refused': checkFreedBuffers,
  'bytes are copied between and within buffers': checkCopies,
  'copies out of range or onto themselves are refused': checkRefusedCopies,
  'copies and runs keep their order': checkCopyOrder,
  'limits are true': checkLimits,
  'a device in order is not lost': checkStaysAlive,
  'reads of what is not there are refused': checkReads,
  'abort and failing boundaries leave the executable usable': checkAbort,
  'one run at a time': checkOneRunAtATime,
  'nothing works after dispose': checkDispose,
  'the event loop keeps turning': checkEventLoop,
  'the same bits on every run': checkDeterminism,
  'profile counts records, runs and work': checkProfile,
  'programs share buffers': checkSharedBuffers,
  'neurons in several passes have the bits of one pass': checkSplitSums,
};
