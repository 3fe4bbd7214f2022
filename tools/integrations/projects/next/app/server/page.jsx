import { generate } from '../../lib/generate.js';

export const dynamic = 'force-dynamic';

export default async function Page() {
  return <output>{await generate()}</output>;
}
