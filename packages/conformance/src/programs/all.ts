/** Every whole-program case. */
import { integerGraphCases } from './integer-graphs.js';
import type { ProgramCase } from './program-case.js';
import { segmentCases } from './segments.js';
import { transformerCases } from './transformer.js';

export const programCases: readonly ProgramCase[] = [...segmentCases, ...integerGraphCases, ...transformerCases];
