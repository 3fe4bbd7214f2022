/** The whole suite for one backend, or for variants of one, as vitest tests. */
import type { Backend } from '@winnow/ops';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { float32Arithmetic } from '../arithmetic.js';
import { kernelCases } from '../cases/all.generated.js';
import { contractChecks, soleChecks } from '../contract/checks.js';
import type { KernelCase } from '../kernel-case.js';
import { programCases } from '../programs/all.js';
import { checkKernelCase, checkUnsupportedCase, sizeKinds, type SizeKind } from '../runs/run-kernel-case.js';
import { checkProgramCase } from '../runs/run-program-case.js';
import { assignGroups, assignVariants, inTurn, selectCases, type Coverage, type NamedCase } from './coverage.js';
import { compareSupport, fullSupport, supportTable, type SupportTable } from './support-table.js';

export interface DescribeBackendOptions {
  readonly name: string;
  /** Creates a fresh backend, which the suite disposes of. */
  create(): Backend | Promise<Backend>;
  /** The ops that the backend has kernels for, to be committed beside its test. Default: all. */
  readonly expectedSupport?: SupportTable;
  /** Whether numbers below 2^-126 may become 0. Default false. */
  readonly flushesDenormals?: boolean;
  /** Which cases of each op run, and on which variants. Default `full`. */
  readonly coverage?: Coverage;
}

/** Registers the suite: support table, every kernel case, whole programs, and the contract beyond numbers. */
export function describeBackend({ name, create, ...options }: DescribeBackendOptions): void {
  describeVariants({ ...options, variants: { [name]: create } });
}

export interface DescribeVariantsOptions extends Omit<DescribeBackendOptions, 'name' | 'create'> {
  /** By name; each creates a fresh backend. */
  readonly variants: Readonly<Record<string, DescribeBackendOptions['create']>>;
  /**
   * Names of variants that have something in common, a build or that threads share work: each kind of value needs one of each group.
   * Default: groups of one.
   */
  readonly groups?: readonly (readonly string[])[];
  /**
   * Variants whose contract besides numerical results is checked: those that differ in more than kernels. Default: all.
   */
  readonly contractOf?: readonly string[];
}

/** A backend under test, with the name that its failures carry. */
interface Variant {
  readonly name: string;
  create(): Promise<Backend>;
  backend?: Backend;
}

type BackendCheck = (backend: Backend, index: number) => readonly string[] | Promise<readonly string[]>;

/**
 * The same suite for variants of one backend side by side: the tensors and the expected results of a case, which take
 * as long as a run, are computed once for all of them.
 */
export function describeVariants(options: DescribeVariantsOptions): void {
  const { expectedSupport = fullSupport(), flushesDenormals, coverage = 'full' } = options;
  const names = Object.keys(options.variants);
  const { contractOf = names, groups = names.map((name) => [name]) } = options;
  const arithmetic = float32Arithmetic(flushesDenormals);
  const variants = Object.entries(options.variants).map(([name, create]): Variant => ({
    name,
    create: async () => create(),
  }));
  describe(`backend ${variants.map(({ name }) => name).join(' | ')}`, () => {
    beforeAll(async () => {
      for (const variant of variants) variant.backend = await variant.create();
    });
    afterAll(async () => {
      for (const { backend } of variants) await backend?.dispose();
    });
    const assign = <Case extends NamedCase>(cases: readonly Case[]): (readonly [string, Case, Variant[]])[] =>
      [...assignGroups(cases, groups, coverage)].map(([each, chosen]) => {
        return [each.name, each, variants.filter(({ name }) => chosen.includes(name))] as const;
      });
    const onEach = async (chosen: readonly Variant[], check: BackendCheck): Promise<void> => {
      const failures: string[] = [];
      for (const [index, { name, backend }] of chosen.entries()) {
        failures.push(...(await check(backend!, index)).map((failure) => `${name}: ${failure}`));
      }
      expect(failures).toEqual([]);
    };

    it('supports what its table says', () =>
      onEach(variants, (backend) => compareSupport(supportTable(backend), expectedSupport)));
    describe.each(Object.entries(kernelCases))('%s', (_op, cases) => {
      const selected = selectCases(cases, coverage);
      const sizesOf = assignVariants(selected, sizeKinds, coverage);
      it.each(assign(selected))('%s', async (_name, kernelCase, chosen) => {
        const check = isExpected(expectedSupport, kernelCase) ? checkKernelCase : checkUnsupportedCase;
        const shared = { ...kernelCase, create: once(kernelCase.create) };
        const sizes = sizesOf.get(kernelCase) as readonly SizeKind[];
        const turns = inTurn(sizes, chosen.length, selected.indexOf(kernelCase), coverage);
        await onEach(chosen, (backend, index) => check(backend, shared, { arithmetic, sizes: turns[index] }));
      });
    });
    describe('whole programs', () => {
      it.each(assign(programCases))('%s', async (_name, programCase, chosen) => {
        const shared = { ...programCase, create: once(programCase.create) };
        // fallbacks of single ops are tested above; here they must not change results
        await onEach(chosen, (backend) => checkProgramCase(backend, shared, { arithmetic, allowFallback: true }));
      });
    });
    const withContract = variants.filter(({ name }) => contractOf.includes(name));
    describe.each(withContract.map((variant) => [variant.name, variant] as const))(
      'contract of %s',
      (_name, variant) => {
        it.each(Object.entries(contractChecks))('%s', async (name, check) => {
          const isSole = coverage === 'full' || soleChecks.has(name);
          expect(await check(isSole ? variant.create : async () => shared(variant.backend!))).toEqual([]);
        });
      },
    );
  });
}

function isExpected(expectedSupport: SupportTable, { op, dtypes }: KernelCase): boolean {
  const types = Object.values(dtypes);
  return (types.length === 0 ? ['f32'] : types).every((dtype) => expectedSupport[op]?.[dtype] === true);
}

/** A backend that stays when a check disposes of it: starting its workers takes longer than most checks. */
function shared(backend: Backend): Backend {
  return { ...backend, dispose: async () => {} };
}

/** Keeps the first result: all variants of a backend have the same arithmetic. */
function once<Truth, Arguments extends unknown[]>(
  create: (...values: Arguments) => Truth,
): (...values: Arguments) => Truth {
  let truth: Truth | undefined;
  return (...values) => (truth ??= create(...values));
}
