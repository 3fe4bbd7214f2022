/** The whole suite for one backend, as vitest tests. */
import type { Backend } from '@winnow/ops';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { float32Arithmetic } from './arithmetic.js';
import { kernelCases } from './cases/all.js';
import { contractChecks } from './contract-checks.js';
import type { KernelCase } from './kernel-case.js';
import { programCases } from './programs/all.js';
import { checkProgramCase } from './run-program-case.js';
import { checkKernelCase, checkUnsupportedCase } from './run-kernel-case.js';
import { compareSupport, fullSupport, supportTable, type SupportTable } from './support-table.js';

export interface DescribeBackendOptions {
  readonly name: string;
  /** Makes a fresh backend; the suite disposes what it makes. */
  create(): Backend | Promise<Backend>;
  /** What the backend has kernels for, to be committed beside its test. Default: everything. */
  readonly expectedSupport?: SupportTable;
  /** Whether numbers below 2^-126 may become 0. Default false. */
  readonly flushesDenormals?: boolean;
}

/** Registers the suite: support table, every kernel case, whole programs, and the contract beyond numbers. */
export function describeBackend(options: DescribeBackendOptions): void {
  const { name, expectedSupport = fullSupport() } = options;
  const arithmetic = float32Arithmetic(options.flushesDenormals);
  const create = async (): Promise<Backend> => options.create();
  const isExpected = ({ op, dtypes }: KernelCase): boolean => {
    const variants = Object.values(dtypes);
    return (variants.length === 0 ? ['f32'] : variants).every((dtype) => expectedSupport[op]?.[dtype] === true);
  };
  describe(`backend ${name}`, () => {
    let backend: Backend;
    beforeAll(async () => {
      backend = await create();
    });
    afterAll(async () => {
      await backend.dispose();
    });

    it('supports what its table says', () => {
      expect(compareSupport(supportTable(backend), expectedSupport)).toEqual([]);
    });

    describe.each(Object.entries(kernelCases))('%s', (_op, cases) => {
      it.each(cases.map((kernelCase) => [kernelCase.name, kernelCase] as const))('%s', async (_name, kernelCase) => {
        const failures = isExpected(kernelCase)
          ? await checkKernelCase(backend, kernelCase, { arithmetic })
          : await checkUnsupportedCase(backend, kernelCase, { arithmetic });
        expect(failures).toEqual([]);
      });
    });

    describe('whole programs', () => {
      it.each(programCases.map((programCase) => [programCase.name, programCase] as const))(
        '%s',
        async (_name, programCase) => {
          // fallbacks of single ops are judged above; here they must not change results
          expect(await checkProgramCase(backend, programCase, { arithmetic, allowFallback: true })).toEqual([]);
        },
      );
    });

    describe('contract', () => {
      it.each(Object.entries(contractChecks))('%s', async (_name, check) => {
        expect(await check(create)).toEqual([]);
      });
    });
  });
}
