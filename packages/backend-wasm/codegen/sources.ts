/** Lets Node run the sources of sibling packages: sets the condition `@winnow/source`, and resolves `./x.js` to `x.ts`. */
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const conditions = [...context.conditions, '@winnow/source'];
    const fromSources = context.parentURL?.endsWith('.ts') === true && specifier.startsWith('.');
    return nextResolve(fromSources ? specifier.replace(/\.js$/, '.ts') : specifier, { ...context, conditions });
  },
});
