-- distinct and bag semantics
select carrier from airlines except select carrier from flights where cancelled
union all
(select origin from flights intersect all select carrier from flights)
