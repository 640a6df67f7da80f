import os,sys,json,time
os.environ['OPENBLAS_NUM_THREADS']='1'
from multiprocessing import Pool
from studies.policy.policies import *
def job(a):
    from studies.policy import try_ as T
    name,p,C,n,seed,length,kinds=a
    r,_=T.run(p,C,n,seed,length,kinds)
    return name,C,r
def grid(variants,Cs=(256,128),n=32,seed=0,length=1024,kinds=('one','decoys'),procs=3,save=None):
    jobs=[(k,p,C,n,seed,length,kinds) for k,p in variants.items() for C in Cs]
    res={}
    with Pool(procs) as pool:
        for name,C,r in pool.imap(job,jobs):
            res.setdefault(name,{})[C]=r
            if len(res[name])==len(Cs):
                d=res[name]
                print('%-34s'%name,' | '.join('%-6s r '%k+' '.join('%.2f'%d[c][k]['recall'] for c in Cs)+' nll '+' '.join('%.3f'%d[c][k]['nll'] for c in Cs) for k in kinds),flush=True)
    if save: json.dump(res,open(save,'w'))
    return res
