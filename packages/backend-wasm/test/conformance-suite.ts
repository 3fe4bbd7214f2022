/** The suite of `@winnow/conformance` over variants of the kernels, at 1, 2 and 4 threads. */
import { readFileSync } from 'node:fs';
import { describeVariants, type SupportTable } from '@winnow/conformance';
import type { Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { createWasmBackend, type CreateWasmBackendOptions } from '../src/index.js';

const expectedSupport = JSON.parse(readFileSync(new URL('support.json', import.meta.url), 'utf8')) as SupportTable;

/** Small enough that hundreds of backends fit the address space. */
const maxMemoryBytes = 2 ** 26;

/**
 * Variants with f32 activations, for which the bounds of the suite are derived.
 * @param contractOf variants that differ from the others in more than kernels and the number of threads
 * @param others backends created in other ways, with their contract
 */
export function describeWasm(
  variants: Readonly<Record<string, CreateWasmBackendOptions>>,
  contractOf: readonly string[],
  others: Readonly<Record<string, () => Promise<Backend>>> = {},
): void {
  const creators = Object.entries(variants).map(([name, options]) => {
    const create = (): Promise<Backend> =>
      createWasmBackend({ maxMemoryBytes, activations: 'f32', maxCallerMs: 0, ...options });
    return [name, create] as const;
  });
  const all = { ...Object.fromEntries(creators), ...others };
  describeVariants({
    variants: all,
    expectedSupport,
    coverage: testCoverage,
    contractOf: testCoverage === 'full' ? Object.keys(all) : [...contractOf, ...Object.keys(others)],
  });
}
