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
import { checkBatchInvariance } from './batch-invariance.js';
import { checkSplitSums } from './split-sums.js';

/** Checks by name. */
export const contractChecks: Readonly<Record<string, ContractCheck>> = {
  'unknown ops are rejected': checkUnknownOps,
  'mismatched scalars are rejected': checkScalarsFit,
  'memory is written and read in range': checkMemory,
  'foreign, missing and small buffers are rejected': checkForeignBuffers,
  'freed buffers are rejected': checkFreedBuffers,
  'bytes are copied between and within buffers': checkCopies,
  'invalid copies are rejected': checkRefusedCopies,
  'copies and runs keep their order': checkCopyOrder,
  'limits are true': checkLimits,
  'a working device is not lost': checkStaysAlive,
  'reads of missing outputs are rejected': checkReads,
  'abort and failing boundaries leave the executable usable': checkAbort,
  'one run at a time': checkOneRunAtATime,
  'nothing works after dispose': checkDispose,
  'the event loop keeps running': checkEventLoop,
  'runs are bit-identical': checkDeterminism,
  'the bits of a token do not depend on the other tokens of its step': checkBatchInvariance,
  'profile counts records, runs and work': checkProfile,
  'programs share buffers': checkSharedBuffers,
  'several passes over neurons are bit-identical to one': checkSplitSums,
};

/** Checks that need a backend of their own: they use all its memory, end it, or give its buffers to another. */
export const soleChecks: ReadonlySet<string> = new Set([
  'invalid copies are rejected',
  'foreign, missing and small buffers are rejected',
  'limits are true',
  'a working device is not lost',
  'nothing works after dispose',
]);
