/** What @peculiar/x509 asks of `Reflect` when it is loaded: the part of `reflect-metadata` that it needs, import it first. */
const kept = new WeakMap<object, Map<unknown, unknown>>();
const getOwnMetadata = (key: unknown, target: object) => kept.get(target)?.get(key);
const defineMetadata = (key: unknown, value: unknown, target: object) => {
  const ofTarget = kept.get(target) ?? new Map();
  kept.set(target, ofTarget.set(key, value));
};
Object.assign(Reflect, { getMetadata: getOwnMetadata, getOwnMetadata, defineMetadata });

export {};
