/** All generated microkernels: text by path below `assembly`. */
import { attentionFiles } from './microkernels/attention.ts';
import { ffnFiles } from './microkernels/ffn.ts';
import { f32GemmFiles } from './microkernels/f32-gemm-kernels.ts';
import { qgemmFiles } from './microkernels/qgemm-kernels.ts';

export const microkernelFiles: ReadonlyMap<string, string> = new Map([
  ...f32GemmFiles,
  ...qgemmFiles,
  ...ffnFiles,
  ...attentionFiles,
]);
