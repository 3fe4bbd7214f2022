/** All planted defects. Each is a realistic mistake in code that a test must cover. */
import { applicationsMutants } from './lists/applications.ts';
import { attentionKernelsMutants } from './lists/attention-kernels.ts';
import { coreMutants } from './lists/core.ts';
import { engineMutants } from './lists/engine.ts';
import { formatsMutants } from './lists/formats.ts';
import { imagesMutants } from './lists/images.ts';
import { jobsMutants } from './lists/jobs.ts';
import { kernelsMutants } from './lists/kernels.ts';
import { modelsMutants } from './lists/models.ts';
import { nativeKernelsMutants } from './lists/native-kernels.ts';
import { sparsityMutants } from './lists/sparsity.ts';
import { testSupportMutants } from './lists/test-support.ts';
import { textMutants } from './lists/text.ts';
import { untrustedInputMutants } from './lists/untrusted-input.ts';
import type { Mutant } from './mutant.ts';

export const mutants: readonly Mutant[] = [
  ...coreMutants,
  ...formatsMutants,
  ...textMutants,
  ...engineMutants,
  ...modelsMutants,
  ...imagesMutants,
  ...sparsityMutants,
  ...applicationsMutants,
  ...jobsMutants,
  ...untrustedInputMutants,
  ...testSupportMutants,
  ...kernelsMutants,
  ...attentionKernelsMutants,
  ...nativeKernelsMutants,
];
