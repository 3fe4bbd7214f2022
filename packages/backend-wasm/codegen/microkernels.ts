/** All generated microkernels: text by path below `assembly`. */
import { attentionFiles } from './microkernels/attention.ts';
import { axpyFiles } from './microkernels/axpy.ts';
import { f32GemmFiles } from './microkernels/f32-gemm-kernels.ts';
import { gatherGemvFiles } from './microkernels/gather-gemv.ts';
import { gemvFiles } from './microkernels/gemv.ts';
import { qgemmFiles } from './microkernels/qgemm.ts';
import { qgemvFiles } from './microkernels/qgemv.ts';

export const microkernelFiles: ReadonlyMap<string, string> = new Map([
  ...f32GemmFiles,
  ...gemvFiles,
  ...qgemmFiles,
  ...qgemvFiles,
  ...axpyFiles,
  ...gatherGemvFiles,
  ...attentionFiles,
]);
