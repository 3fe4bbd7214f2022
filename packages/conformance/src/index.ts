export { float32Arithmetic, type Arithmetic } from './arithmetic.js';
export { kernelCases } from './cases/all.generated.js';
export { compareClose, compareExact, compareOutput } from './compare.js';
export { contractChecks, soleChecks } from './contract/checks.js';
export type { ContractCheck, CreateBackend } from './contract/fixtures.js';
export { assignGroups, assignVariants, selectCases, type Coverage, type NamedCase } from './suite/coverage.js';
export {
  describeBackend,
  describeVariants,
  type DescribeBackendOptions,
  type DescribeVariantsOptions,
} from './suite/describe-backend.js';
export type { CaseTensor, Expected, KernelCase, KernelData } from './kernel-case.js';
export { buildKernelProgram, type KernelProgram } from './runs/kernel-program.js';
export type { GuardedBuffer } from './guarded-memory.js';
export { programCases } from './programs/all.js';
export type { ProgramCase, ProgramStep } from './programs/program-case.js';
export {
  checkKernelCase,
  checkUnsupportedCase,
  sizeKinds,
  type KernelCheckOptions,
  type SizeKind,
} from './runs/run-kernel-case.js';
export { checkProgramCase } from './runs/run-program-case.js';
export {
  compareSupport,
  fullSupport,
  supportMarkdown,
  supportTable,
  type SupportTable,
} from './suite/support-table.js';
export { rngOf } from './values.js';
